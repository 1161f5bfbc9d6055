"""Established connections: bytes move between both ends inside the kernel.

They move through a pipe (``splice``) that is borrowed only while it holds something, so that an
idle connection costs two descriptors. A slow reader holds up its writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable

from trainyard.podruntime.egress.relay_loop import BOTH_ONCE, READABLE, WRITABLE, RelayLoop

_CHUNK = 1 << 20
_TURN_BYTES = 4 << 20
"""Others get their turn after so many bytes."""
_LARGE_PIPES = 24
"""Beyond so many large pipes the kernel gives a user small ones."""
_SPARE_PIPES = 64
_WITHOUT_WAITING = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_RESET, _ORDERLY = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
_KEEP_ALIVE = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 20),
    (socket.TCP_KEEPCNT, 3),
)
_BUFFERS = ((16, 0), (256, 512 << 10), (1 << 30, 64 << 10))
"""(connections, buffer bytes): up to so many connections, each has buffers of this size (0: the
kernel decides). Many that nobody reads would fill the memory."""


def buffer_bytes(connections: int) -> int:
    """The buffer size of one more connection; 0: the kernel decides."""
    return next(size for limit, size in _BUFFERS if connections < limit)


class _Pipes:
    def __init__(self) -> None:
        self._spare: list[tuple[int, int]] = []
        self._count = 0

    def take(self) -> tuple[int, int]:
        """A pipe; raises OSError where too many files are open."""
        if self._spare:
            return self._spare.pop()
        pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._count += 1
        if self._count <= _LARGE_PIPES:
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, _CHUNK)
        return pipe

    def give_back(self, pipe: tuple[int, int], *, is_empty: bool) -> None:
        if is_empty and len(self._spare) < _SPARE_PIPES:
            self._spare.append(pipe)
            return
        os.close(pipe[0])
        os.close(pipe[1])
        self._count -= 1


class _Direction:
    """One direction. ``is_readable`` and ``is_writable`` are set when the kernel reports so."""

    __slots__ = ("buffered", "has_ended", "is_readable", "is_writable", "pipe", "source", "target")

    def __init__(self, source: int, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.is_readable = self.is_writable = True
        self.has_ended = False
        self.pipe: tuple[int, int] | None = None
        self.buffered = 0

    def move(self, pipes: _Pipes) -> bool:
        """Move what is possible; returns whether there may be more. OSError: it is broken."""
        moved = 0
        while moved < _TURN_BYTES and (self.buffered or self._fill(pipes)):
            if not self.is_writable:
                break
            assert self.pipe is not None
            try:
                count = os.splice(
                    self.pipe[0], self.target.fileno(), self.buffered, flags=_WITHOUT_WAITING
                )
            except BlockingIOError:
                self.is_writable = False
                break
            self.buffered -= count
            moved += count
        self.drop(pipes, only_empty=True)
        return moved >= _TURN_BYTES

    def _fill(self, pipes: _Pipes) -> bool:
        if not self.is_readable or self.has_ended:
            return False
        if self.pipe is None:
            self.pipe = pipes.take()
        try:
            self.buffered = os.splice(self.source, self.pipe[1], _CHUNK, flags=_WITHOUT_WAITING)
        except BlockingIOError:
            self.is_readable = False
            return False
        if not self.buffered:
            self.has_ended = True
            self.target.shutdown(socket.SHUT_WR)
        return self.buffered > 0

    def drop(self, pipes: _Pipes, *, only_empty: bool = False) -> None:
        if self.pipe is not None and not (only_empty and self.buffered):
            pipes.give_back(self.pipe, is_empty=not self.buffered)
            self.pipe = None


class _Pair:
    def __init__(
        self, inside: socket.socket, outside: socket.socket, ended: Callable[[], None]
    ) -> None:
        self.ends = inside, outside
        self.ended = ended
        self.out = _Direction(inside.fileno(), outside)
        self.back = _Direction(outside.fileno(), inside)
        self.is_queued = self.is_dead = False


class TcpStreams:
    """All connections that are open at both ends."""

    def __init__(self, loop: RelayLoop) -> None:
        self._loop = loop
        self._pipes = _Pipes()
        self._by_pod: dict[bytes, set[_Pair]] = defaultdict(set)
        self.count = 0

    def join(
        self, pod: bytes, inside: socket.socket, outside: socket.socket, ended: Callable[[], None]
    ) -> None:
        """Carry bytes between them until both have ended or one breaks; then call ``ended()``."""
        size = buffer_bytes(self.count)
        for end in (inside, outside):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # If we are killed, neither side may take that for a regular end of the stream.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE:
                end.setsockopt(socket.IPPROTO_TCP, option, value)
            if size:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        pair = _Pair(inside, outside, ended)
        self._by_pod[pod].add(pair)
        self.count += 1

        def on_ready(ready: _Direction, other: _Direction, events: int) -> None:
            if events & READABLE:
                ready.is_readable = True
            if events & WRITABLE:
                other.is_writable = True
            self._pump(pod, pair)

        out, back = pair.out, pair.back
        self._loop.watch(inside.fileno(), lambda events: on_ready(out, back, events), BOTH_ONCE)
        self._loop.watch(outside.fileno(), lambda events: on_ready(back, out, events), BOTH_ONCE)

    def forget_pod(self, pod: bytes) -> None:
        for pair in list(self._by_pod.get(pod, ())):
            self._end(pod, pair, is_orderly=False)

    def _pump(self, pod: bytes, pair: _Pair) -> None:
        if pair.is_dead:
            return
        try:
            out, back = pair.out.move(self._pipes), pair.back.move(self._pipes)
        except OSError:
            self._end(pod, pair, is_orderly=False)
            return
        if all(
            direction.has_ended and not direction.buffered for direction in (pair.out, pair.back)
        ):
            self._end(pod, pair, is_orderly=True)
        elif (out or back) and not pair.is_queued:
            pair.is_queued = True
            self._loop.call_soon(lambda: self._pump_again(pod, pair))

    def _pump_again(self, pod: bytes, pair: _Pair) -> None:
        pair.is_queued = False
        self._pump(pod, pair)

    def _end(self, pod: bytes, pair: _Pair, *, is_orderly: bool) -> None:
        pair.is_dead = True
        for end in pair.ends:
            self._loop.unwatch(end.fileno())
            if is_orderly:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY)
            end.close()
        pair.out.drop(self._pipes)
        pair.back.drop(self._pipes)
        self.count -= 1
        self._by_pod[pod].discard(pair)
        if not self._by_pod[pod]:
            del self._by_pod[pod]
        pair.ended()
