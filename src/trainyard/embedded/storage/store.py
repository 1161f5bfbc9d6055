"""The durable store: one SQLite file holding every object and the revision counter.

What `Store.commit` has returned from survives `kill -9` and a power cut: the database is in WAL
mode with `synchronous=FULL`, so each commit ends with an fsync. Many writes share one commit;
the committer groups them. The store knows bytes, not objects.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from trainyard.embedded.storage.disk_reserve import RESERVED_BYTES, DiskReserve
from trainyard.embedded.storage.row_writes import DiskFull, StorageError, StoreDamaged, Write
from trainyard.embedded.storage.store_backup import backup_path, check, write_backup
from trainyard.machine.state_folder import is_disk_full

FORMAT = 1
"""Stored as SQLite's user_version; a newer number means a newer trainyard wrote the file."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
);
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER);
INSERT OR IGNORE INTO counter VALUES (0, 0);
"""
_KEEP = """
INSERT INTO objects VALUES (?, ?, ?, ?)
ON CONFLICT (resource, namespace, name) DO UPDATE SET body = excluded.body
"""
"""INSERT OR REPLACE takes the old row out first, and twice the time."""


_log = logging.getLogger(__name__)


class Store:
    """A SQLite file that only one process has open at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`; raises StorageError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_present(path)
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))  # Secrets are in it
            _check_format(path)
            self._reserve = DiskReserve(path)
            self._is_short = False
            self._backup_revision = -1
            self._backup_problem = ""
            try:
                self._db = self._open(path)
            except BaseException:
                self._reserve.close()
                raise
            self._page_bytes = int(self._db.execute("PRAGMA page_size").fetchone()[0])
            self._extend_reserve()
        except OSError as error:
            raise StorageError(
                f"cannot create the state folder {path.parent}: {error.strerror}; "
                "make it writable or set TRAINYARD_STATE_DIR to another folder"
            ) from error
        except sqlite3.Error as error:
            raise _explained(path, "open", error) from error

    def _open(self, path: Path) -> sqlite3.Connection:
        # check_same_thread: commits may run in a writer thread, never two at a time.
        db = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            # Exclusive locking keeps the WAL index in this process's memory and keeps others out.
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        except BaseException:
            db.close()
            raise
        return db

    def _extend_reserve(self) -> None:
        pages = int(self._db.execute("PRAGMA page_count").fetchone()[0])
        is_complete = self._reserve.extend(pages * self._page_bytes)
        if is_complete and self._is_short:
            _log.warning("there is room again on the disk of the state folder")
        elif not is_complete and not self._is_short:
            _log.warning("%s. Objects can be deleted, but none created", self._full())
        self._is_short = not is_complete

    def _full(self) -> DiskFull:
        return DiskFull(
            f"the disk of the state folder {self.path.parent} is full: no space left on device; "
            f"make room there, {RESERVED_BYTES >> 20} MiB at least: all goes on by itself then"
        )

    def check_room(self, *, can_retry: bool) -> None:
        """Raise DiskFull unless there is room for more than deletions.

        `can_retry`: no commit is under way, so the reserve can be tried again now.
        """
        if can_retry and not self._reserve.is_complete:
            self._extend_reserve()
        if not self._reserve.is_complete:
            raise self._full()

    def revision(self) -> int:
        """The highest resourceVersion ever committed; 0 for a new store."""
        (found,) = self._db.execute("SELECT revision FROM counter").fetchone() or (0,)
        return found if isinstance(found, int) else 0

    def rows(self) -> Iterator[tuple[str, str, str, bytes]]:
        """Every stored object as (resource, namespace, name, JSON)."""
        try:
            yield from self._db.execute("SELECT resource, namespace, name, body FROM objects")
        except sqlite3.Error as error:
            raise _explained(self.path, "read", error) from error

    def commit(self, writes: Sequence[Write], revision: int) -> None:
        """Write all rows and the revision, or none of them; durable on return."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for write in writes:
                if write.body is None:
                    self._db.execute(
                        "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?",
                        write[:3],
                    )
                else:
                    self._db.execute(_KEEP, write)
            self._db.execute("UPDATE counter SET revision = ?", (revision,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
                raise self._full() from error
            raise _explained(self.path, "write to", error) from error
        if not self._reserve.is_unchanged:
            self._extend_reserve()

    def back_up(self) -> None:
        """Copy the file beside it if it has changed, where there is room; not during a commit."""
        if self._is_short or not self._reserve.is_in_place:
            return
        problem = ""
        try:
            revision = self.revision()
            if revision != self._backup_revision:
                write_backup(self._db, self.path)
                self._backup_revision = revision
        except (OSError, sqlite3.Error) as error:
            problem = str(error)
        if problem and problem != self._backup_problem:
            _log.warning("there is no new copy of %s: %s", self.path, problem)
        self._backup_problem = problem

    def close(self) -> None:
        """Copy the file, checkpoint the log into it and close it."""
        self.back_up()
        self._db.close()
        self._reserve.close()


def open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.2)


def _check_format(path: Path) -> None:
    """Raise StorageError for the file of a newer version, which is not changed."""
    with closing(open_read_only(path)) as db:
        found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise StorageError(
            f"cannot open {path}: a newer trainyard wrote it (format {found}, this one "
            f"knows {FORMAT}); upgrade trainyard or use another state folder"
        )


def _check_present(path: Path) -> None:
    """Raise StoreDamaged where the file is missing or cut to nothing, and had objects."""
    backup = backup_path(path)
    if backup.exists() and not (path.exists() and path.stat().st_size):
        what = "is empty" if path.exists() else "is missing"
        raise StoreDamaged(
            f"{path} {what}, and its objects with it: `trainyard doctor --restore` brings back "
            f"those of its copy; to begin without any, remove {backup}"
        )


def stored_rows(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
    """The rows of a file that no cluster has open; the file is not changed."""
    _check_present(path)
    try:
        with closing(open_read_only(path)) as db:
            check(db)
            yield from db.execute("SELECT resource, namespace, name, body FROM objects")
    except sqlite3.Error as error:
        raise _explained(path, "read", error) from error


def _explained(path: Path, verb: str, error: sqlite3.Error) -> StorageError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or not code:
        return StoreDamaged(
            f"cannot {verb} {path}: {error}; the file is damaged: `trainyard doctor --restore` "
            "brings back what can be read, once the cluster is down"
        )
    text = str(error)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        text = "another trainyard process is using it; stop that one (trainyard down) first"
    elif code.startswith(("SQLITE_FULL", "SQLITE_IOERR")) and is_disk_full(path.parent):
        text = "the disk is full: make room there; what is stored stays"
    elif code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        text = f"{text}; make the folder writable or set TRAINYARD_STATE_DIR to another one"
    return StorageError(f"cannot {verb} {path}: {text}")
