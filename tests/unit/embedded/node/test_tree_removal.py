"""Deleting what pods have left behind."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from trainyard.embedded.node.volumes import tree_removal

DEEP = sys.getrecursionlimit() + 100


def dig(place: Path, name: str, depth: int) -> None:
    folder = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)


def test_folders_however_deep_and_long_are_deleted(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    dig(left, "b" * 255, DEEP)
    tree_removal.remove(str(left))
    assert not left.exists()


def test_links_are_deleted_and_not_followed(tmp_path: Path) -> None:
    left, outside = tmp_path / "left", tmp_path / "outside"
    for folder in (left / "inner" / "deeper", outside):
        folder.mkdir(parents=True)
    (outside / "file").touch()
    for place in (left, left / "inner", left / "inner" / "deeper"):
        (place / "link").symlink_to(outside)
    tree_removal.remove(str(left))
    assert not left.exists()
    assert (outside / "file").exists()
    left.symlink_to(outside)
    tree_removal.remove(str(left))
    assert (outside / "file").exists()


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    tree_removal.remove(str(tmp_path / "missing"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_who_is_not_root_deletes_folders_that_are_closed() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        left = Path(top, "left")
        (left / "closed" / "deeper" / "deepest").mkdir(parents=True)
        (left / "closed" / "deeper" / "file").touch()
        (left / "readable" / "inner").mkdir(parents=True)
        for folder in (Path(top), *Path(top).rglob("*")):
            os.chown(folder, 4242, 4242)
        for name in ("closed/deeper/deepest", "closed/deeper", "closed", ""):
            (left / name).chmod(0)
        (left / "readable").chmod(0o555)
        pid = os.fork()
        if not pid:
            try:
                os.setgid(4242)
                os.setuid(4242)
                tree_removal.remove(str(left))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not left.exists()
