"""Sockets in client pods, so that servers see the address of the caller and not the relay's.

On a real cluster only the Service's address is translated, and programs rely on that: trackers pass
the caller's address on (decision 367). The relay asks the shim, which holds the pods' namespaces,
to open a socket in the pod that has the address.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
import threading

_REQUEST = struct.Struct("=Q4sB")
_ANSWER = struct.Struct("=cQ?")
ANSWER_PREFIX = b"s"
"""The first byte of an answer. The socket is attached, if one could be made."""
MAX_MESSAGE_BYTES = max(_REQUEST.size, _ANSWER.size)
_ANSWER_SECONDS = 1.0
_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM)


class SourceIpSockets:
    """The relay's side: asked by many threads, while one thread receives the answers."""

    def __init__(self, messages: socket.socket) -> None:
        self._messages = messages
        self._numbers = itertools.count()
        self._waiting: dict[int, _PendingAnswer] = {}

    def open(self, address: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Open a socket in the pod at this address, or here if no pod has it. Raises OSError."""
        number, pending = next(self._numbers), _PendingAnswer(kind)
        self._waiting[number] = pending
        try:
            self._messages.send(_REQUEST.pack(number, socket.inet_aton(address), kind))
            pending.is_answered.wait(_ANSWER_SECONDS)
        finally:
            del self._waiting[number]
        return pending.take()

    def on_answer(self, data: bytes, descriptors: list[int]) -> None:
        """Handle an answer; a socket that nobody waits for any more is closed."""
        _, number, is_pod = _ANSWER.unpack(data)
        fd = descriptors.pop() if descriptors else -1
        if (pending := self._waiting.get(number)) is not None:
            pending.put(fd, is_pod=is_pod)
        elif fd >= 0:
            os.close(fd)


class _PendingAnswer:
    """A request that waits for its answer."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self.is_answered = threading.Event()
        self._lock = threading.Lock()
        self._fd, self._is_pod, self._is_over = -1, True, False

    def put(self, fd: int, *, is_pod: bool) -> None:
        with self._lock:
            if not self._is_over:
                self._fd, self._is_pod, fd = fd, is_pod, -1
        if fd >= 0:
            os.close(fd)
        self.is_answered.set()

    def take(self) -> socket.socket:
        """The socket. An answer that comes later is closed."""
        with self._lock:
            self._is_over = True
        if self._fd >= 0:
            return socket.socket(fileno=self._fd)
        if self._is_pod:
            raise OSError(errno.EAGAIN, "there is no socket for it now")
        return socket.socket(type=self._kind)


def parse_request(data: bytes) -> tuple[int, str, int]:
    """Parse a request into number, address and kind of socket; raises ValueError."""
    try:
        number, address, kind = _REQUEST.unpack(data)
    except struct.error as error:
        raise ValueError(str(error)) from None
    if kind not in _KINDS:
        raise ValueError(f"no kind of socket: {kind}")
    return number, socket.inet_ntoa(address), kind


def pack_answer(number: int, *, is_pod: bool) -> bytes:
    """The bytes of an answer, as the relay reads them."""
    return _ANSWER.pack(ANSWER_PREFIX, number, is_pod)
