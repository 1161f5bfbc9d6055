"""Frames between the agent and the shim: length-prefixed JSON, with file descriptors beside it.

Both ends speak only to their own user (the socket lies in the state folder). A frame that is no
JSON object is refused alone; a length that cannot be means that the stream is lost, and ends the
connection. What the messages say is in ``protocol``.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence

from trainyard.shim.protocol import ProtocolError, Raw

_HEADER = struct.Struct("=I")
_MAX_DESCRIPTORS = 8
_CHUNK = 1 << 16
_MAX_FRAME = 1 << 28


class FrameError(OSError):
    """The stream is out of step: nothing after this can be understood."""


def encode(message: Raw) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def parse(frame: bytes) -> Raw:
    """The JSON object in a frame; raises ProtocolError."""
    try:
        found = json.loads(frame)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError("not a JSON object")
    return found


class Decoder:
    """Cuts a byte stream into frames; descriptors are handed out in the order they came."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.descriptors: list[int] = []

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > _MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return frames

    def receive(self, connection: socket.socket) -> list[bytes] | None:
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


def send_descriptors(connection: socket.socket, data: bytes, descriptors: Sequence[int]) -> int:
    """Send ``data`` with ``descriptors`` attached to its first byte; returns the bytes sent."""
    payload = array.array("i", descriptors)
    return connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, payload)])
