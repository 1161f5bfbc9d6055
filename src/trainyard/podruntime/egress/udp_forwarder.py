"""UDP: a connected socket for each flow, and its answers back to the pod."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Protocol

from trainyard.podruntime.egress import ip_packets
from trainyard.podruntime.egress.egress_policy import Endpoint, PodQuota, is_pod
from trainyard.podruntime.egress.ip_packets import Flow
from trainyard.podruntime.egress.relay_loop import RelayLoop
from trainyard.podruntime.egress.spoofed_replies import SpoofedReplies

_AT_ONCE = 64
_MAX_DATAGRAM_BYTES = 65535
_IP_ORIGDSTADDR = 20
_UNANSWERED_SECONDS, _ANSWERED_SECONDS = 30.0, 120.0


class _Association:
    def __init__(
        self, flow: Flow, endpoint: Endpoint, outside: socket.socket, quoted: bytes
    ) -> None:
        self.flow, self.endpoint, self.outside, self.quoted = flow, endpoint, outside, quoted
        self.used_at = time.monotonic()
        self.idle_seconds = _UNANSWERED_SECONDS


class DatagramRouter(Protocol):
    """Decides where datagrams go, and from which socket."""

    def choose_endpoint(self, address: bytes, port: int) -> Endpoint:
        """The destination of a new flow; an OSError is reported to the pod by ICMP."""

    def open_socket(self, source: bytes) -> socket.socket:
        """A socket that sends for this pod; an OSError likewise."""


class UdpForwarder:
    """Forwards datagrams. A pod with too many flows loses its oldest."""

    def __init__(
        self, loop: RelayLoop, replies: SpoofedReplies, quota: PodQuota, router: DatagramRouter
    ) -> None:
        self._loop, self._replies, self._quota, self._router = loop, replies, quota, router
        self._by_pod: dict[bytes, OrderedDict[Flow, _Association]] = defaultdict(OrderedDict)
        loop.every_second(self._sweep)

    def listen_on(self, inside: socket.socket) -> None:
        """Forward what arrives at a socket that has IP_RECVORIGDSTADDR set."""
        self._loop.watch(inside.fileno(), partial(self._read, inside))

    def _read(self, inside: socket.socket, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                data, extra, _, (source, port) = inside.recvmsg(_MAX_DATAGRAM_BYTES, 64)
                endpoint = next((c for _, kind, c in extra if kind == _IP_ORIGDSTADDR), b"")
                if len(endpoint) >= 8:
                    (target_port,) = struct.unpack_from(">H", endpoint, 2)
                    flow = Flow(socket.inet_aton(source), port, endpoint[4:8], target_port)
                    self._send(flow, data)

    def _send(self, flow: Flow, data: bytes) -> None:
        if not is_pod(flow.source):
            return
        association = self._by_pod[flow.source].get(flow) or self._associate(flow, len(data))
        if association is None:
            return
        association.used_at = time.monotonic()
        self._by_pod[flow.source].move_to_end(flow)
        try:
            association.outside.send(data)
        except BlockingIOError:
            pass  # lost, as in any network
        except OSError as error:
            self._report_unreachable(association, error)

    def _associate(self, flow: Flow, length: int) -> _Association | None:
        quoted = ip_packets.ip_header(flow.source, flow.target, ip_packets.UDP, 8 + length)
        quoted += ip_packets.datagram(flow.source_port, flow.target_port, bytes(length))[:8]
        try:
            endpoint = self._router.choose_endpoint(flow.target, flow.target_port)
        except OSError as error:
            self._replies.unreachable(flow, quoted, error.errno or errno.EACCES)
            return None
        if not self._quota.take(flow.source):
            if not self._by_pod[flow.source]:
                return None  # other pods use up the total limit
            self._drop(next(iter(self._by_pod[flow.source].values())))
            self._quota.take(flow.source)
        outside = None
        try:
            outside = self._router.open_socket(flow.source)
            outside.setblocking(False)
            outside.connect(endpoint)
        except OSError as error:
            if outside is not None:
                outside.close()
            self._quota.give_back(flow.source)
            self._replies.unreachable(flow, quoted, error.errno or 0)
            return None
        made = self._by_pod[flow.source][flow] = _Association(flow, endpoint, outside, quoted)
        self._loop.watch(outside.fileno(), partial(self._on_answer, made))
        return made

    def _on_answer(self, association: _Association, _: int) -> None:
        try:
            for _turn in range(_AT_ONCE):
                data = association.outside.recv(_MAX_DATAGRAM_BYTES)
                association.used_at = time.monotonic()
                association.idle_seconds = _ANSWERED_SECONDS
                self._replies.datagram(association.flow, data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._report_unreachable(association, error)

    def _report_unreachable(self, association: _Association, error: OSError) -> None:
        self._replies.unreachable(association.flow, association.quoted, error.errno or 0)

    def drop_unless(self, is_current: Callable[[Flow, Endpoint], bool]) -> None:
        """Drop flows for which ``is_current`` no longer holds."""
        for associations in tuple(self._by_pod.values()):
            for each in tuple(associations.values()):
                if not is_current(each.flow, each.endpoint):
                    self._drop(each)

    def forget_pod(self, pod: bytes) -> None:
        for association in list(self._by_pod.get(pod, {}).values()):
            self._drop(association)

    def _drop(self, association: _Association) -> None:
        source = association.flow.source
        self._loop.unwatch(association.outside.fileno())
        association.outside.close()
        self._quota.give_back(source)
        del self._by_pod[source][association.flow]

    def _sweep(self, now: float) -> None:
        for source, associations in list(self._by_pod.items()):
            for each in list(associations.values()):
                if each.used_at + each.idle_seconds < now:
                    self._drop(each)
            if not associations:
                del self._by_pod[source]
