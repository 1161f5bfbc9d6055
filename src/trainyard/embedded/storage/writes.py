"""What is written to a store, and what may come of it: also where objects are not kept."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.schema.errors import TrainyardError


class StorageError(TrainyardError):
    """The state folder cannot be read or written; nothing of the failed commit was kept."""


class DiskFull(StorageError):
    """There is no room: deletions still succeed, and changes that add next to nothing."""


class Write(NamedTuple):
    """One row to write; `body` None deletes it."""

    resource: str
    namespace: str
    name: str
    body: bytes | None
