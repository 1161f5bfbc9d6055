"""UDP Services: datagrams to their addresses go to their pods, and answers come back.

A sender's port keeps reaching the same pod while it goes on. Where no pod is, the sender gets an
ICMP refusal.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterable

from trainyard.podruntime.egress.egress_policy import Endpoint, PodQuota
from trainyard.podruntime.egress.ip_packets import Flow
from trainyard.podruntime.egress.relay_loop import RelayLoop
from trainyard.podruntime.egress.spoofed_replies import SpoofedReplies
from trainyard.podruntime.egress.tproxy_setup import IP_RECVORIGDSTADDR
from trainyard.podruntime.egress.udp_forwarder import UdpForwarder
from trainyard.podruntime.network.source_ip_sockets import SourceIpSockets
from trainyard.podruntime.protocol import Forward

_ASSOCIATIONS = 512, 4096
"""Limits for a pod, and for all pods."""


class UdpServiceRelay:
    """A thread that forwards datagrams. Raises OSError."""

    def __init__(
        self, source_sockets: SourceIpSockets | None, report_error: Callable[[str], None]
    ) -> None:
        self._source_sockets, self._report_error = source_sockets, report_error
        self._forwards: dict[Endpoint, Forward] = {}
        self._sockets: dict[Endpoint, socket.socket] = {}
        self._turn = itertools.count()
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._loop = RelayLoop()
        self._datagrams = UdpForwarder(
            self._loop, SpoofedReplies(raw), PodQuota(*_ASSOCIATIONS), self
        )
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._loop.watch(self._wake_reader, self._apply_forwards)
        threading.Thread(target=self._loop.run, daemon=True).start()

    def set(self, forwards: Iterable[Forward]) -> None:
        """Replace what is forwarded, from any thread."""
        self._forwards = {(each.address, each.port): each for each in forwards}
        os.write(self._wake_writer, b"w")

    def choose_endpoint(self, address: bytes, port: int) -> Endpoint:
        """The pod that answers a new sender; ConnectionRefusedError if there is none."""
        forward = self._forwards.get((socket.inet_ntoa(address), port))
        if forward is None or not forward.endpoints:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody is there")
        return forward.endpoints[next(self._turn) % len(forward.endpoints)]

    def open_socket(self, source: bytes) -> socket.socket:
        """A socket that sends with the client pod's own address."""
        if self._source_sockets is None:
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return self._source_sockets.open(socket.inet_ntoa(source), socket.SOCK_DGRAM)

    def _apply_forwards(self, _: int) -> None:
        os.read(self._wake_reader, 1 << 10)
        wanted = self._forwards
        for key in self._sockets.keys() - wanted.keys():
            gone = self._sockets.pop(key)
            self._loop.unwatch(gone.fileno())
            gone.close()
        for key in wanted.keys() - self._sockets.keys():
            try:
                self._sockets[key] = self._open(key)
            except (OSError, OverflowError) as error:
                self._report_error(f"{type(error).__name__}: {error}: UDP at {key[0]}:{key[1]}")

        def is_current(flow: Flow, endpoint: Endpoint) -> bool:
            forward = wanted.get((socket.inet_ntoa(flow.target), flow.target_port))
            return forward is not None and endpoint in forward.endpoints

        self._datagrams.drop_unless(is_current)

    def _open(self, key: Endpoint) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            made.setsockopt(socket.SOL_IP, IP_RECVORIGDSTADDR, 1)
            made.bind(key)
            self._datagrams.listen_on(made)
        except BaseException:
            made.close()
            raise
        return made
