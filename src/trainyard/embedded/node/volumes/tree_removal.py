"""Deletes folders that pods have written: of any depth, whatever their permissions."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable

from trainyard.podruntime.filesystem import safe_paths

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC


def remove(path: str) -> None:
    """Delete the folder ``path`` with all that is in it; no link is followed, no error raised.

    What lies deeper is moved up before it is emptied: a pod can nest folders so that neither their
    paths nor a recursion can be as long (``shutil.rmtree`` recurses until Python 3.13).
    """
    with contextlib.suppress(OSError):
        top = _open(path)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def remove_all(paths: Iterable[str]) -> None:
    for path in paths:
        remove(path)


def _empty(top: int) -> None:
    new_names = map(f".{os.urandom(8).hex()}-{{}}".format, itertools.count())
    todo = _folders_left_in(top)
    while todo:
        name = todo.pop()
        with contextlib.suppress(OSError):
            folder = _open(name, top)
            try:
                for inner in _folders_left_in(folder):
                    moved = next(new_names)
                    if not _delete(inner, folder) and _move(inner, folder, moved, top):
                        todo.append(moved)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _delete(name: str, within: int) -> bool:
    """Whether a folder is gone: if no others are in it."""
    with contextlib.suppress(OSError):
        folder = _open(name, within)  # and who moves it must be able to write it
        try:
            if _folders_left_in(folder):
                return False
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=within)
        return True
    return False


def _move(name: str, source: int, new_name: str, target: int) -> bool:
    with contextlib.suppress(OSError):
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        return True
    return False


def _folders_left_in(folder: int) -> list[str]:
    """The folders in it, when all else there is deleted."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _open(name: str, within: int | None = None) -> int:
    """A descriptor of the folder, which its owner can read and write from now on."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | _FOLDER, dir_fd=within)
    try:
        with contextlib.suppress(OSError):
            os.chmod(safe_paths.proc_path(place), 0o700)
        return os.open(safe_paths.proc_path(place), os.O_RDONLY | _FOLDER)
    finally:
        os.close(place)
