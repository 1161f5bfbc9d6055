"""A copy of the store beside it, from which `trainyard doctor --restore` brings objects back."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def backup_path(path: Path) -> Path:
    """Where the copy of a store lies."""
    return path.with_name(f"{path.name}.backup")


def write_backup(db: sqlite3.Connection, path: Path) -> None:
    """Replace the copy of the store at `path`, which `db` has open, by what it holds now.

    Raises OSError or sqlite3.Error where that cannot be, or the store is damaged: the copy stays.
    """
    draft = path.with_name(f"{path.name}.backup.new")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft)) as copy:
            copy.execute("PRAGMA journal_mode = OFF")
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that it is one file
            check(copy)
        draft.replace(backup_path(path))
    finally:
        draft.unlink(missing_ok=True)


def check(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where pages of a database are damaged."""
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)
