"""Sends the stacks of this process to whoever asks from within the pod (`stack_collector`).

The observer answers when it takes its samples. Mounted into the user's image: standard
library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
from types import FrameType

ADDRESS = "\0trainyard-observer-{}"
"""An abstract Unix socket, by the number of the process; it is gone with the process."""
TIMEOUT_SECONDS = 1.0
MOST_FRAMES = 60
_OURS = "trainyard-observer"


class StackServer:
    """Listens on a socket, and answers when `answer_waiting` is called."""

    def __init__(self) -> None:
        self._end = socket.socket(socket.AF_UNIX)
        self._end.bind(ADDRESS.format(os.getpid()))
        self._end.listen(4)
        self._end.setblocking(False)

    def answer_waiting(self, rank: int, doing: str) -> None:
        """Answer one request, if it is by the user of this process or by root."""
        with contextlib.suppress(OSError):
            peer, _ = self._end.accept()
            with peer:
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                if struct.unpack("3i", credentials)[1] not in (0, os.getuid()):
                    return
                peer.settimeout(TIMEOUT_SECONDS)
                answer = {"rank": rank, "doing": doing, "threads": threads()}
                peer.sendall(json.dumps(answer).encode())


def threads() -> list[dict[str, object]]:
    """The stacks of all threads but ours, the main thread first, innermost frame first."""
    names = {each.ident: each.name for each in threading.enumerate()}
    main = threading.main_thread().ident
    found = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    return [
        {"name": names.get(ident, "?"), "frames": _frames(frame)}
        for ident, frame in found
        if names.get(ident) != _OURS
    ]


def _frames(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < MOST_FRAMES:
        code = frame.f_code
        found.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found
