"""One pod runtime for a state folder, by a lock that outlives the folder.

The folder may be removed, or go away with its file system and come back, while the runtime and
its pods live on. The lock is the name of an abstract Unix socket, which the kernel frees with the
process that has it.
"""

from __future__ import annotations

import os
import socket
import time

from trainyard.machine.ownership import peer_of
from trainyard.schema.errors import TrainyardError
from trainyard.schema.object_names import fnv1a64

_FREE_SECONDS = 5.0
"""A runtime that has just ended may still have it."""


class FolderHeld(TrainyardError):
    """Another pod runtime lives that was started for this folder."""


def take(folder: str | os.PathLike[str]) -> socket.socket | None:
    """The lock of a folder, for a runtime that is about to start: a socket that is to listen.

    None where another user has taken the name, who has no part in our folder. Raises FolderHeld.
    """
    lock = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + _FREE_SECONDS
    while True:
        try:
            lock.bind(_address(folder))
            return lock
        except OSError:
            if (pid := holder(folder)) < 0:
                lock.close()
                return None
            if time.monotonic() > deadline:
                lock.close()
                raise FolderHeld(
                    f"the cluster of {os.fspath(folder)} still runs pods (process {pid}), but its "
                    "files were removed or replaced: nothing was changed; end it and them with: "
                    "trainyard down"
                ) from None
        time.sleep(0.02)


def holder(folder: str | os.PathLike[str]) -> int:
    """The process id of the runtime that holds a folder; 0: none; -1: another user has the name."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_FREE_SECONDS)
        try:
            connection.connect(_address(folder))
        except OSError:
            return 0
        found = peer_of(connection)
        return found.pid if found.uid == os.geteuid() else -1


def _address(folder: str | os.PathLike[str]) -> str:
    path = os.path.realpath(folder)
    return f"\0trainyard-{fnv1a64(os.fsencode(path)):016x}"
