"""One row that is to be written, and the errors of writing.

Apart from the store, so that a cluster that keeps nothing on disk does not import SQLite.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.schema.errors import TrainyardError


class StorageError(TrainyardError):
    """The state folder cannot be read or written; nothing of the failed commit was kept."""


class StoreDamaged(StorageError):
    """What is in the store's file cannot be read; there is a copy beside it."""


class DiskFull(StorageError):
    """There is no room: deletions still succeed, and changes that add next to nothing."""


class Write(NamedTuple):
    """One row to write; `body` None deletes it."""

    resource: str
    namespace: str
    name: str
    body: bytes | None
