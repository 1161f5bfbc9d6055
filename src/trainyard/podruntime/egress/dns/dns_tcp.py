"""DNS over TCP (RFC 7766): a pod may send any number of queries over one connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from functools import partial

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.egress_policy import PodQuota, is_pod
from trainyard.podruntime.egress.relay_loop import IN, OUT, RelayLoop

_AT_ONCE = 64
_CHUNK = 64 << 10
_IDLE_SECONDS = 30.0
_MOST_UNREAD_BYTES = 1 << 20

Reply = Callable[[bytes], None]
AskHandler = Callable[[dns_messages.DnsQuestion, bytes, Reply], None]
"""Called with a query, the pod that asks, and a function that takes the answer, now or later."""


class _DnsConnection:
    """``unanswered``: how many queries wait for their answer."""

    def __init__(self, pod: bytes, end: socket.socket) -> None:
        self.pod, self.end = pod, end
        self.read, self.unsent = b"", b""
        self.unanswered = 0
        self.has_ended = self.is_closed = False
        self.used_at = time.monotonic()


class DnsTcpServer:
    """``listener`` is a socket of ``tproxy_setup``."""

    def __init__(
        self, listener: socket.socket, loop: RelayLoop, quota: PodQuota, handler: AskHandler
    ) -> None:
        self._listener, self._loop, self._quota, self._handler = listener, loop, quota, handler
        self._open: set[_DnsConnection] = set()
        loop.watch(listener.fileno(), self._accept)
        loop.every_second(self._sweep)

    def _accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _turn in range(_AT_ONCE):
                end, (source, _port) = self._listener.accept()
                pod = socket.inet_aton(source)
                if not is_pod(pod) or not self._quota.take(pod):
                    end.close()
                    continue
                end.setblocking(False)
                made = _DnsConnection(pod, end)
                self._open.add(made)
                self._loop.watch(end.fileno(), partial(self._ready, made))

    def _ready(self, connection: _DnsConnection, events: int) -> None:
        try:
            if events & OUT:
                connection.unsent = connection.unsent[connection.end.send(connection.unsent) :]
            if not events & ~OUT:
                self._rewatch(connection)
                return
            data = connection.end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        connection.used_at = time.monotonic()
        connection.has_ended |= not data
        messages, connection.read = _split_messages(connection.read + data)
        try:
            for message in messages:
                asked = dns_messages.read_question(message)
                connection.unanswered += 1
                self._handler(asked, connection.pod, partial(self._reply, connection))
        except ValueError:
            self._close(connection)
        self._rewatch(connection)

    def _reply(self, connection: _DnsConnection, answer: bytes) -> None:
        connection.unanswered -= 1
        if connection.is_closed:
            return
        connection.used_at = time.monotonic()
        connection.unsent += struct.pack(">H", len(answer)) + answer
        try:
            connection.unsent = connection.unsent[connection.end.send(connection.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
            return
        self._rewatch(connection)

    def _rewatch(self, connection: _DnsConnection) -> None:
        """Watch the connection for what is still to come, or close it."""
        if connection.is_closed:
            return
        is_over = connection.has_ended and not connection.unanswered and not connection.unsent
        if is_over or len(connection.unsent) > _MOST_UNREAD_BYTES:
            self._close(connection)
            return
        self._loop.unwatch(connection.end.fileno())
        events = (0 if connection.has_ended else IN) | (OUT if connection.unsent else 0)
        self._loop.watch(connection.end.fileno(), partial(self._ready, connection), events)

    def _close(self, connection: _DnsConnection) -> None:
        if not connection.is_closed:
            connection.is_closed = True
            self._loop.unwatch(connection.end.fileno())
            connection.end.close()
            self._open.discard(connection)
            self._quota.give_back(connection.pod)

    def forget_pod(self, pod: bytes) -> None:
        for connection in [each for each in self._open if each.pod == pod]:
            self._close(connection)

    def _sweep(self, now: float) -> None:
        for connection in [each for each in self._open if each.used_at + _IDLE_SECONDS < now]:
            self._close(connection)


def _split_messages(data: bytes) -> tuple[list[bytes], bytes]:
    """Split into whole messages and an unfinished rest."""
    messages, place = [], 0
    while len(data) >= place + 2:
        end = place + 2 + int.from_bytes(data[place : place + 2], "big")
        if len(data) < end:
            break
        messages.append(data[place + 2 : end])
        place = end
    return messages, data[place:]
