"""The service relay: accepts at the addresses of ClusterIP Services and connects to their pods.

It lives in the cluster's network namespace, to which pods send what is not for their own subnet.
Each connection has two threads that move bytes inside the kernel (``splice``). A pod that does not
listen yet is tried again for a while, so that clients need not know in which order pods start.
Datagrams have a thread of their own (``service_relay_udp``).
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
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.network.netlink import LOOPBACK_INDEX, Netlink
from trainyard.podruntime.network.source_ip_sockets import (
    ANSWER_PREFIX,
    MAX_MESSAGE_BYTES,
    SourceIpSockets,
)
from trainyard.podruntime.processes.child_channel import receive_descriptors, try_send_report
from trainyard.podruntime.processes.child_tasks import ChildReport
from trainyard.podruntime.protocol import Forward, SetForwards, from_raw

if TYPE_CHECKING:
    from trainyard.podruntime.network.service_relay_udp import UdpServiceRelay

_CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.05
_SPLICE_BYTES = 1 << 20
_STACK_BYTES = 256 * 1024
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Endpoint = tuple[str, int]


def run(configuration: int, own_addresses: bool, channel: int) -> NoReturn:
    """Be the relay until the shim is gone.

    Each message of the socket ``configuration`` brings a file with a ``SetForwards``, which
    replaces the previous one. ``own_addresses``: put Services' addresses on the loopback interface
    first. Errors are reported through ``channel``.
    """
    sys.set_process_name("trainyard-relay")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.stack_size(_STACK_BYTES)
    with socket.socket(fileno=configuration) as messages:
        source_sockets = SourceIpSockets(messages) if own_addresses else None
        relay = _ServiceRelay(
            own_addresses,
            source_sockets,
            lambda text: try_send_report(channel, ChildReport(error=text)),
        )
        while True:
            data, descriptors = receive_descriptors(messages, MAX_MESSAGE_BYTES)
            if not data:
                os._exit(0)
            if source_sockets is not None and data.startswith(ANSWER_PREFIX):
                source_sockets.on_answer(data, descriptors)
                continue
            for fd in descriptors:
                with open(fd, "rb") as file:
                    relay.configure(from_raw(SetForwards, json.loads(file.read())).forwards)


class _Listener:
    def __init__(self, forward: Forward, source_sockets: SourceIpSockets | None) -> None:
        """``source_sockets`` is None where pods share this network namespace."""
        self.endpoints = forward.endpoints
        self._source_sockets = source_sockets
        self._turn = itertools.count()
        self.socket = socket.create_server((forward.address, forward.port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, (client_address, _) = self.socket.accept()
            except OSError as error:
                if error.errno not in _FULL:
                    return  # the socket was shut down
                time.sleep(_RETRY_SECONDS)
                continue
            try:
                threading.Thread(
                    target=self._forward, args=(client, client_address), daemon=True
                ).start()
            except RuntimeError:  # no more threads are permitted
                _reset(client)

    def _forward(self, client: socket.socket, client_address: str) -> None:
        server = self._connect(client_address)
        if server is None:
            _reset(client)
            return
        with client, server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            try:
                back.start()
            except RuntimeError:
                return
            _copy(client, server)
            back.join()

    def _connect(self, client_address: str) -> socket.socket | None:
        until = time.monotonic() + _CONNECT_SECONDS
        while time.monotonic() < until:
            if endpoints := self.endpoints:
                with contextlib.suppress(OSError):
                    return self._connected(
                        endpoints[next(self._turn) % len(endpoints)], client_address
                    )
            time.sleep(_RETRY_SECONDS)
        return None

    def _connected(self, endpoint: Endpoint, client_address: str) -> socket.socket:
        made = (
            socket.socket()
            if self._source_sockets is None
            else self._source_sockets.open(client_address)
        )
        try:
            made.settimeout(_CONNECT_SECONDS)
            made.connect(endpoint)
        except BaseException:
            made.close()
            raise
        return made


class _ServiceRelay:
    def __init__(
        self,
        own_addresses: bool,
        source_sockets: SourceIpSockets | None,
        report_error: Callable[[str], None],
    ) -> None:
        self._report_error = report_error
        self._source_sockets = source_sockets
        self._netlink = Netlink() if own_addresses else None
        self._listeners: dict[Endpoint, _Listener] = {}
        self._addresses: set[str] = set()
        self._datagrams: UdpServiceRelay | None = None

    def configure(self, forwards: Sequence[Forward]) -> None:
        streams = [forward for forward in forwards if forward.protocol == "TCP"]
        wanted = {(forward.address, forward.port): forward for forward in streams}
        for key in self._listeners.keys() - wanted.keys():
            listener = self._listeners.pop(key)
            with contextlib.suppress(OSError):
                listener.socket.shutdown(socket.SHUT_RDWR)  # ends the accepting thread
            listener.socket.close()
        for address in self._addresses - {forward.address for forward in forwards}:
            self._try(partial(self._remove_address, address))
        for key, forward in wanted.items():
            if key in self._listeners:
                self._listeners[key].endpoints = forward.endpoints
            else:
                self._try(partial(self._listen, forward))
        self._try(partial(self._set_datagrams, [f for f in forwards if f.protocol == "UDP"]))

    def _set_datagrams(self, forwards: Sequence[Forward]) -> None:
        for forward in forwards:
            self._add_address(forward.address)
        if self._datagrams is None and forwards:
            from trainyard.podruntime.network.service_relay_udp import (
                UdpServiceRelay,  # few Services need it
            )

            self._datagrams = UdpServiceRelay(self._source_sockets, self._report_error)
        if self._datagrams is not None:
            self._datagrams.set(forwards)

    def _try(self, action: Callable[[], None]) -> None:
        """Run ``action``; an error is reported, and does not keep the rest from working."""
        try:
            action()
        except (OSError, ValueError, OverflowError, RuntimeError, ImportError) as error:
            self._report_error(f"{type(error).__name__}: {error}")

    def _listen(self, forward: Forward) -> None:
        self._add_address(forward.address)
        self._listeners[(forward.address, forward.port)] = _Listener(forward, self._source_sockets)

    def _add_address(self, address: str) -> None:
        if self._netlink is not None and address not in self._addresses:
            with contextlib.suppress(FileExistsError):  # left by a previous relay
                self._netlink.add_address(address, 32, LOOPBACK_INDEX)
            self._addresses.add(address)

    def _remove_address(self, address: str) -> None:
        if self._netlink is not None:
            self._addresses.discard(address)
            self._netlink.remove_address(address, 32, LOOPBACK_INDEX)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    connection.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy all bytes from ``source`` to ``target``, then end that stream."""
    source.settimeout(None)
    target.settimeout(None)
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC)
    except OSError:  # too many open files
        _shut_down(source, target)
        return
    try:
        while moved := os.splice(source.fileno(), writer, _SPLICE_BYTES):
            while moved:
                moved -= os.splice(reader, target.fileno(), moved)
        target.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            _shut_down(source, target)
    finally:
        os.close(reader)
        os.close(writer)


def _shut_down(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
