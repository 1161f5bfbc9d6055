"""Folders of pods that are gone do not pile up."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.embedded.node.pods.pod_resources import delete_old_folders


def pod_folder(folder: Path, uid: str, age: int) -> Path:
    path = folder / f"default_job-worker-0_{uid}"
    (path / "main").mkdir(parents=True)
    (path / "main" / "0.log").write_text("line\n")
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def test_the_oldest_go_and_the_last_stay(tmp_path: Path) -> None:
    paths = [pod_folder(tmp_path, f"u{age}", age) for age in range(5)]
    delete_old_folders(tmp_path.as_posix(), (), keep=2)
    assert [path.exists() for path in paths] == [True, True, False, False, False]


def test_pods_that_are_there_stay_however_old_and_do_not_count(tmp_path: Path) -> None:
    old, *others = (pod_folder(tmp_path, f"u{age}", age) for age in (9, 1, 2))
    delete_old_folders(tmp_path.as_posix(), {"u9"}, keep=1)
    assert old.exists()
    assert [path.exists() for path in others] == [True, False]


def test_fewer_than_the_limit_all_stay_and_no_folder_is_fine(tmp_path: Path) -> None:
    path = pod_folder(tmp_path, "u", 0)
    delete_old_folders(tmp_path.as_posix(), (), keep=2)
    delete_old_folders((tmp_path / "absent").as_posix(), ())
    assert path.exists()
