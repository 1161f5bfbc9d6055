"""Messages between the agent and the shim: length-prefixed JSON, with file descriptors beside it.

Both ends are written by us and speak only to their own user (the socket lies in the state
folder), so a broken frame is a bug and ends the connection.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

Message = dict[str, Any]
_HEADER = struct.Struct("=I")
_MAX_DESCRIPTORS = 8
_CHUNK = 1 << 16


def encode(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into messages; descriptors are handed out in the order they came."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.descriptors: list[int] = []

    def feed(self, data: bytes) -> list[Message]:
        self._buffer += data
        messages = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return messages

    def receive(self, connection: socket.socket) -> list[Message] | None:
        """Read what is there; None at the end of the stream."""
        space = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = connection.recvmsg(_CHUNK, space, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self.descriptors.extend(fds)
        return self.feed(data) if data else None

    def take_descriptors(self, count: int) -> list[int]:
        taken, self.descriptors = self.descriptors[:count], self.descriptors[count:]
        return taken


def send_descriptors(connection: socket.socket, data: bytes, descriptors: list[int]) -> int:
    """Send ``data`` with ``descriptors`` attached to its first byte; returns the bytes sent."""
    payload = array.array("i", descriptors)
    return connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, payload)])
