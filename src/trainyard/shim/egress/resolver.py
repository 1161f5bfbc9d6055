"""Name look-ups of pods, passed on to the name servers of the machine."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from functools import partial
from typing import Any

from trainyard.shim.egress import names
from trainyard.shim.egress.policy import Quota, is_pod
from trainyard.shim.egress.poll import OUT, Poll
from trainyard.shim.egress.streams import Streams

_FILE = "/etc/resolv.conf"
_PORT = 53
_AT_ONCE = 64
_MOST_BYTES = 65535
_MOST_SERVERS = 3
"""As of the C library."""
_PATIENCE_SECONDS = 4.0
"""Of all servers together: pods give up after five."""
_SHORT_PATIENCE_SECONDS = 1.0
"""Of a server that has not said a word lately: a machine without a network must not slow down
programs that only try."""
_SILENT_SECONDS = 30.0

Address = tuple[Any, ...]
Client = tuple[str, int]


class _Server:
    """``silent_until``: monotonic seconds."""

    def __init__(self, family: int, address: Address) -> None:
        self.family, self.address = family, address
        self.heard_at = self.silent_until = 0.0

    def open(self, kind: int) -> socket.socket:
        return socket.socket(self.family, kind | socket.SOCK_NONBLOCK)


class _Lookup:
    def __init__(self, asked: names.Question, client: Client, servers: list[_Server]) -> None:
        self.asked, self.client, self.servers = asked, client, servers
        self.patience = _PATIENCE_SECONDS / max(1, len(servers))
        self.server: _Server | None = None
        self.socket: socket.socket | None = None
        self.began_at = self.deadline = 0.0


class Resolver:
    """``questions`` and ``long_questions`` (TCP) are sockets of the gate."""

    def __init__(
        self,
        questions: socket.socket,
        long_questions: socket.socket,
        poll: Poll,
        streams: Streams,
        quota: Quota,
        connections: Quota,
    ) -> None:
        self._questions, self._long_questions = questions, long_questions
        self._poll, self._streams = poll, streams
        self._quota, self._connections = quota, connections
        self._lookups: set[_Lookup] = set()
        self._servers: list[_Server] = []
        self._read_at: tuple[int, int] | None = None
        poll.watch(questions.fileno(), self._read)
        poll.watch(long_questions.fileno(), self._accept)
        poll.every_second(self._sweep)
        self._look()

    # -- whom to ask ------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the machine's file where it has changed."""
        try:
            found = os.stat(_FILE)
        except OSError:
            return
        if (found.st_mtime_ns, found.st_ino) == self._read_at:
            return
        with contextlib.suppress(OSError), open(_FILE, errors="replace") as file:
            self._servers = servers(file.read())
            self._read_at = found.st_mtime_ns, found.st_ino

    # -- datagrams --------------------------------------------------------------------------------

    def _read(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                message, client = self._questions.recvfrom(_MOST_BYTES)
                try:
                    asked = names.question(message)
                except ValueError:
                    continue
                if is_pod(socket.inet_aton(client[0])):
                    self._take(asked, client)

    def _take(self, asked: names.Question, client: Client) -> None:
        if (answer := names.known(asked)) is not None:
            self._answer(client, answer)
        elif not self._quota.take(socket.inet_aton(client[0])):
            self._answer(client, names.failure(asked))
        else:
            lookup = _Lookup(asked, client, list(self._servers))
            self._lookups.add(lookup)
            self._ask_next(lookup)

    def _ask_next(self, lookup: _Lookup) -> None:
        self._hang_up(lookup)
        while lookup.servers:
            server = lookup.server = lookup.servers.pop(0)
            now = lookup.began_at = time.monotonic()
            is_silent = server.silent_until > now
            lookup.deadline = now + (_SHORT_PATIENCE_SECONDS if is_silent else lookup.patience)
            with contextlib.suppress(OSError):
                lookup.socket = server.open(socket.SOCK_DGRAM)
                lookup.socket.connect(server.address)
                lookup.socket.send(lookup.asked.message)
                self._poll.watch(lookup.socket.fileno(), partial(self._hear, lookup))
                return
            self._hang_up(lookup)
        self._finish(lookup, names.failure(lookup.asked))

    def _hear(self, lookup: _Lookup, _: int) -> None:
        assert lookup.socket is not None
        assert lookup.server is not None
        try:
            message = lookup.socket.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._ask_next(lookup)
            return
        lookup.server.heard_at, lookup.server.silent_until = time.monotonic(), 0.0
        if names.is_answer(message, lookup.asked):
            self._finish(lookup, message)

    def _finish(self, lookup: _Lookup, answer: bytes) -> None:
        self._hang_up(lookup)
        self._lookups.discard(lookup)
        self._quota.give_back(socket.inet_aton(lookup.client[0]))
        self._answer(lookup.client, answer)

    def _hang_up(self, lookup: _Lookup) -> None:
        if lookup.socket is not None:
            self._poll.forget(lookup.socket.fileno())
            lookup.socket.close()
            lookup.socket = None

    def _answer(self, client: Client, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._questions.sendto(message, client)

    def _sweep(self, now: float) -> None:
        self._look()
        for lookup in [each for each in self._lookups if each.deadline < now]:
            server = lookup.server
            if server is not None and server.heard_at < lookup.began_at:
                server.silent_until = now + _SILENT_SECONDS
            self._ask_next(lookup)

    # -- connections ------------------------------------------------------------------------------

    def _accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _turn in range(_AT_ONCE):
                inside, (source, _port) = self._long_questions.accept()
                pod = socket.inet_aton(source)
                if not self._servers or not is_pod(pod) or not self._connections.take(pod):
                    inside.close()
                    continue
                self._connect(pod, inside)

    def _connect(self, pod: bytes, inside: socket.socket) -> None:
        server = min(self._servers, key=lambda each: each.silent_until)
        try:
            outside = server.open(socket.SOCK_STREAM)
        except OSError:
            self._connections.give_back(pod)
            inside.close()
            return
        with contextlib.suppress(BlockingIOError, ConnectionError, OSError):
            outside.connect(server.address)
        self._poll.watch(outside.fileno(), partial(self._connected, pod, inside, outside), OUT)

    def _connected(self, pod: bytes, inside: socket.socket, outside: socket.socket, _: int) -> None:
        self._poll.forget(outside.fileno())
        try:
            outside.getpeername()
        except OSError:  # refused, or nobody there
            self._connections.give_back(pod)
            inside.close()
            outside.close()
            return
        self._streams.join(pod, inside, outside, partial(self._connections.give_back, pod))


def servers(text: str) -> list[_Server]:
    """The name servers that a resolv.conf lists; as the C library, this machine where it lists
    none."""
    found: list[_Server] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver" and len(found) < _MOST_SERVERS:
            with contextlib.suppress(OSError):
                kind, flags = socket.SOCK_DGRAM, socket.AI_NUMERICHOST
                family, *_, address = socket.getaddrinfo(words[1], _PORT, type=kind, flags=flags)[0]
                found.append(_Server(family, address))
    return found or [_Server(socket.AF_INET, ("127.0.0.1", _PORT))]
