"""Disk space set aside, so that deletions succeed when the disk is full.

A deletion is a write: it needs room in SQLite's log, and a checkpoint then writes pages into the
database. Both files are therefore kept longer than needed (decision 92). Space that is freed on
demand would be taken by whatever fills the disk; this space is in the files already. SQLite knows
where its data end: the log's frames are chained by checksums, and the database's header has its
number of pages.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_LOG_BYTES = 8 << 20
"""Twice what the log grows to before SQLite begins at its start again (1,000 pages)."""
_ROOM_BYTES = 8 << 20
"""Beyond the database's pages: more than a round of the log can add."""
RESERVED_BYTES = _LOG_BYTES + _ROOM_BYTES


class DiskReserve:
    """The reserve of one open database. Its file descriptors must not be closed before SQLite's.

    POSIX locks on a file are gone when the process closes any descriptor of it.
    """

    def __init__(self, path: Path) -> None:
        """Open the database's file; `extend` may be called once SQLite has its log."""
        self._path = path
        self._log_path = f"{path}-wal"
        self._db = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._length = -1
        self.is_complete = False
        """Whether all that is to be set aside is."""

    @property
    def is_unchanged(self) -> bool:
        """Whether the database's file is as long as it was made: a checkpoint shortens it."""
        return os.fstat(self._db).st_size == self._length

    @property
    def is_in_place(self) -> bool:
        """Whether the database lies where it was opened, and was not removed or replaced."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._db))
        except OSError:
            return False

    def extend(self, used_bytes: int) -> bool:
        """Extend both files for a database of this size; returns whether the reserve is complete.

        Otherwise at least the space that a checkpoint freed is reclaimed.
        """
        try:
            if not self.is_complete:
                self._lengthen_log()
            os.posix_fallocate(self._db, 0, used_bytes + _ROOM_BYTES)
            self.is_complete = True
        except OSError:
            self.is_complete = False
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._db, 0, max(used_bytes, self._length))
        self._length = os.fstat(self._db).st_size
        return self.is_complete

    def _lengthen_log(self) -> None:
        log = os.open(self._log_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(log, 0, _LOG_BYTES)
        finally:
            os.close(log)

    def close(self) -> None:
        """After SQLite has closed the database."""
        with contextlib.suppress(OSError):
            os.close(self._db)
