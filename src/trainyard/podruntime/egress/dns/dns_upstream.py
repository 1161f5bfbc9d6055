"""Asking the machine's name servers on behalf of pods."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.relay_loop import OUT, RelayLoop

_FILE = "/etc/resolv.conf"
_PORT = 53
_MOST_SERVERS = 3
"""As many as the C library uses."""
_PATIENCE_SECONDS = 4.0
"""For all servers together: pods give up after five."""
_SHORT_PATIENCE_SECONDS = 1.0
"""For a server that has been silent lately: on a machine without a network, programs that only try
must not be slowed down."""
_SILENT_SECONDS = 30.0

Address = tuple[Any, ...]
Done = Callable[[bytes | None], None]
"""Called once with the answer, or with None where no server gives one."""


class _Server:
    """``silent_until``: monotonic seconds."""

    def __init__(self, family: int, address: Address) -> None:
        self.family, self.address = family, address
        self.answered_at = self.silent_until = 0.0

    def open(self, kind: int) -> socket.socket:
        return socket.socket(self.family, kind | socket.SOCK_NONBLOCK)


class _Lookup:
    def __init__(
        self, message: bytes, socket_kind: int, servers: list[_Server], done: Done
    ) -> None:
        self.message, self.socket_kind, self.servers, self.done = (
            message,
            socket_kind,
            servers,
            done,
        )
        self.timeout_seconds = _PATIENCE_SECONDS / max(1, len(servers))
        self.server: _Server | None = None
        self.socket: socket.socket | None = None
        self.read = b""
        self.began_at = self.deadline = 0.0


class UpstreamServers:
    """Asks one server after the other, in the order of resolv.conf."""

    def __init__(self, loop: RelayLoop) -> None:
        self._loop = loop
        self._lookups: set[_Lookup] = set()
        self._servers: list[_Server] = []
        self._read_at: tuple[int, int] | None = None
        loop.every_second(self._on_second)
        self._reload_servers()

    def _reload_servers(self) -> None:
        """Read resolv.conf where it has changed."""
        try:
            found = os.stat(_FILE)
        except OSError:
            return
        if (found.st_mtime_ns, found.st_ino) == self._read_at:
            return
        with contextlib.suppress(OSError), open(_FILE, errors="replace") as file:
            self._servers = parse_servers(file.read())
            self._read_at = found.st_mtime_ns, found.st_ino

    def ask(self, message: bytes, done: Done, *, is_long: bool) -> None:
        """Ask; ``is_long``: over TCP, as the client did."""
        socket_kind = socket.SOCK_STREAM if is_long else socket.SOCK_DGRAM
        lookup = _Lookup(message, socket_kind, list(self._servers), done)
        self._lookups.add(lookup)
        self._ask_next(lookup)

    def _ask_next(self, lookup: _Lookup) -> None:
        self._close_socket(lookup)
        while lookup.servers:
            server = lookup.server = lookup.servers.pop(0)
            now = lookup.began_at = time.monotonic()
            is_silent = server.silent_until > now
            lookup.deadline = now + (
                _SHORT_PATIENCE_SECONDS if is_silent else lookup.timeout_seconds
            )
            with contextlib.suppress(OSError):
                lookup.socket = server.open(lookup.socket_kind)
                with contextlib.suppress(BlockingIOError):
                    lookup.socket.connect(server.address)
                if lookup.socket_kind == socket.SOCK_STREAM:
                    self._loop.watch(lookup.socket.fileno(), partial(self._send_query, lookup), OUT)
                else:
                    lookup.socket.send(lookup.message)
                    self._loop.watch(lookup.socket.fileno(), partial(self._receive_answer, lookup))
                return
            self._close_socket(lookup)
        self._finish(lookup, None)

    def _send_query(self, lookup: _Lookup, _: int) -> None:
        """Send the query over TCP, once connected."""
        assert lookup.socket is not None
        self._loop.unwatch(lookup.socket.fileno())
        try:
            lookup.socket.send(struct.pack(">H", len(lookup.message)) + lookup.message)
        except OSError:
            self._ask_next(lookup)
            return
        lookup.read = b""
        self._loop.watch(lookup.socket.fileno(), partial(self._receive_answer, lookup))

    def _receive_answer(self, lookup: _Lookup, _: int) -> None:
        assert lookup.socket is not None
        assert lookup.server is not None
        try:
            message = lookup.socket.recv(dns_messages.MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._ask_next(lookup)
            return
        if lookup.socket_kind == socket.SOCK_STREAM:
            if not message:
                self._ask_next(lookup)
                return
            lookup.read += message
            length = int.from_bytes(lookup.read[:2], "big")
            if len(lookup.read) < 2 + length:
                return
            message = lookup.read[2 : 2 + length]
        lookup.server.answered_at, lookup.server.silent_until = time.monotonic(), 0.0
        if dns_messages.is_answer_to(message, lookup.message):
            self._finish(lookup, message)
        elif lookup.socket_kind == socket.SOCK_STREAM:
            self._ask_next(lookup)

    def _finish(self, lookup: _Lookup, answer: bytes | None) -> None:
        self._close_socket(lookup)
        self._lookups.discard(lookup)
        lookup.done(answer)

    def _close_socket(self, lookup: _Lookup) -> None:
        if lookup.socket is not None:
            self._loop.unwatch(lookup.socket.fileno())
            lookup.socket.close()
            lookup.socket = None

    def _on_second(self, now: float) -> None:
        self._reload_servers()
        for lookup in [each for each in self._lookups if each.deadline < now]:
            server = lookup.server
            if server is not None and server.answered_at < lookup.began_at:
                server.silent_until = now + _SILENT_SECONDS
            self._ask_next(lookup)


def parse_servers(text: str) -> list[_Server]:
    """The name servers of a resolv.conf. As in the C library, this machine if it lists none."""
    found: list[_Server] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver" and len(found) < _MOST_SERVERS:
            with contextlib.suppress(OSError):
                kind, flags = socket.SOCK_DGRAM, socket.AI_NUMERICHOST
                family, *_, address = socket.getaddrinfo(words[1], _PORT, type=kind, flags=flags)[0]
                found.append(_Server(family, address))
    return found or [_Server(socket.AF_INET, ("127.0.0.1", _PORT))]
