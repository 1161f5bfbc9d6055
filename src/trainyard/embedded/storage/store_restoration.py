"""Brings the objects of a damaged store back: what can be read of it, and else of its copy."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from trainyard.embedded.storage.row_writes import StorageError, StoreDamaged, Write
from trainyard.embedded.storage.store import Store, open_read_only, stored_rows
from trainyard.embedded.storage.store_backup import backup_path

_UNSEEN = 1 << 20
"""Clients may know resourceVersions that came after the copy; none is given out twice."""
_Key = tuple[str, str, str]


class Restored(NamedTuple):
    """What a store was restored from."""

    from_store: int
    """Objects that could still be read where they were."""
    from_backup: int
    """Objects of the copy alone; some may have been deleted after it."""
    backup_time: float
    """When the copy was made, in seconds since the epoch; 0: there is none."""
    damaged: Path
    """Where the damaged file is kept."""


def restore_store(path: Path) -> Restored | None:
    """Replace the store at `path` by one of what can be read; None where nothing is wrong with it.

    No cluster may have it open. Raises StorageError where nothing can be read; then, and where it
    fails, the files stay.
    """
    try:
        for _ in stored_rows(path):
            pass
        return None
    except StoreDamaged:
        pass
    backup = backup_path(path)
    copied, revision = _readable(backup)
    present, newer = _readable(path)
    if not copied and not present:
        raise StorageError(f"nothing can be read of {path}, nor of its copy {backup}")
    backup_time = backup.stat().st_mtime if backup.exists() else 0.0
    damaged = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    draft = path.with_name(f"{path.name}.restored")
    _remove_all(draft)
    try:
        store = Store(draft)
        rows = [Write(*key, body) for key, body in (copied | present).items()]
        store.commit(rows, max(revision, newer) + _UNSEEN)
        store.close()
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{damaged}{suffix}")
        draft.replace(path)
        backup_path(draft).replace(backup)
    finally:
        _remove_all(draft)
    return Restored(len(present), len(copied.keys() - present.keys()), backup_time, damaged)


def _remove_all(draft: Path) -> None:
    for path in draft.parent.glob(f"{draft.name}*"):
        path.unlink()


def _readable(path: Path) -> tuple[dict[_Key, bytes], int]:
    """The rows of a file that can be read, from either end, and its revision."""
    found: dict[_Key, bytes] = {}
    revision = 0
    with suppress(sqlite3.Error), closing(open_read_only(path)) as db:
        db.execute("PRAGMA writable_schema = ON")  # reads files that were cut, as `.recover` does
        for order in ("", "ORDER BY rowid DESC"):
            with suppress(sqlite3.Error):
                rows = db.execute(f"SELECT resource, namespace, name, body FROM objects {order}")
                for row in rows:
                    if None not in row:  # of a page of zeros
                        found[row[:3]] = row[3]
        with suppress(sqlite3.Error):
            (revision,) = db.execute("SELECT revision FROM counter").fetchone() or (0,)
    return found, revision
