"""Logs outlive their pods, but not for ever: the folders of the last pods that went are kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

KEPT_PODS = 500
"""Folders of pods that are no more."""


def forget_old(folder: str, present: Collection[str], keep: int = KEPT_PODS) -> None:
    """Delete the pods' folders in ``folder`` but the ``keep`` last used and those of ``present``.

    ``present`` are uids; a pod's folder ends in ``_<uid>``.
    """
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        gone = [e for e in entries if e.name.rpartition("_")[2] not in present]
    gone.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in gone[: max(0, len(gone) - keep)]:
        shutil.rmtree(entry.path, ignore_errors=True)
