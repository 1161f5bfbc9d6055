"""ClusterIP Services: a process that accepts on a Service's address and connects to its pods.

It lives in the cluster's network namespace, to which pods send what is not for their own subnet.
Each connection has two threads that move bytes inside the kernel (``splice``). A pod that does
not listen yet is tried again for a while, so that a client need not know in which order pods
start. TCP only.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterable
from typing import NoReturn

from trainyard.shim import syscalls as sys
from trainyard.shim.netlink import LOOPBACK_INDEX, Netlink
from trainyard.shim.protocol import Forward, SetForwards, from_raw

_CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.05
_SPLICE_BYTES = 1 << 20
_STACK_BYTES = 256 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Endpoint = tuple[str, int]


def spawn(own_addresses: bool) -> tuple[int, int]:
    """Start the relay; returns its process id and a descriptor that takes its configuration.

    Each configuration is one line of JSON, a ``SetForwards``, and replaces the one before.
    ``own_addresses``: the addresses have to be put on the loopback interface first.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = sys.clone(0)
    if pid:
        os.close(reader)
        return pid, writer
    try:
        sys.die_with_parent()
        sys.set_process_name("trainyard-relay")
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        sys.close_others({reader})
        _serve(reader, own_addresses)
    finally:
        os._exit(0)


def _serve(reader: int, own_addresses: bool) -> NoReturn:
    threading.stack_size(_STACK_BYTES)
    relay = _Relay(own_addresses)
    with os.fdopen(reader) as lines:
        for line in lines:
            relay.configure(from_raw(SetForwards, json.loads(line)).forwards)
    os._exit(0)


class _Listener:
    def __init__(self, forward: Forward) -> None:
        self.endpoints = forward.endpoints
        self._turn = itertools.count()
        self.socket = socket.create_server((forward.address, forward.port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        server = self._connect()
        if server is None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            client.close()
            return
        with client, server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_move, args=(server, client), daemon=True)
            back.start()
            _move(client, server)
            back.join()

    def _connect(self) -> socket.socket | None:
        until = time.monotonic() + _CONNECT_SECONDS
        while time.monotonic() < until:
            if endpoints := self.endpoints:
                with contextlib.suppress(OSError):
                    return socket.create_connection(
                        endpoints[next(self._turn) % len(endpoints)], _CONNECT_SECONDS
                    )
            time.sleep(_RETRY_SECONDS)
        return None


class _Relay:
    def __init__(self, own_addresses: bool) -> None:
        self._netlink = Netlink() if own_addresses else None
        self._listeners: dict[Endpoint, _Listener] = {}
        self._addresses: set[str] = set()

    def configure(self, forwards: Iterable[Forward]) -> None:
        wanted = {(forward.address, forward.port): forward for forward in forwards}
        for key in self._listeners.keys() - wanted.keys():
            listener = self._listeners.pop(key)
            with contextlib.suppress(OSError):
                listener.socket.shutdown(socket.SHUT_RDWR)  # ends the accepting thread
            listener.socket.close()
        self._set_addresses({forward.address for forward in forwards})
        for key, forward in wanted.items():
            if key in self._listeners:
                self._listeners[key].endpoints = forward.endpoints
            else:
                with contextlib.suppress(OSError):
                    self._listeners[key] = _Listener(forward)

    def _set_addresses(self, wanted: set[str]) -> None:
        if self._netlink is None:
            return
        for address in self._addresses - wanted:
            self._netlink.remove_address(address, 32, LOOPBACK_INDEX)
        for address in wanted - self._addresses:
            self._netlink.add_address(address, 32, LOOPBACK_INDEX)
        self._addresses = wanted


def _move(source: socket.socket, target: socket.socket) -> None:
    """All bytes from ``source`` to ``target``, then the end of the stream."""
    source.settimeout(None)
    target.settimeout(None)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        while moved := os.splice(source.fileno(), writer, _SPLICE_BYTES):
            while moved:
                moved -= os.splice(reader, target.fileno(), moved)
        target.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(reader)
        os.close(writer)
