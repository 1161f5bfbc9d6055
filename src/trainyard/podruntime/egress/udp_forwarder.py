"""UDP: a connected socket for each pair of ends, and what it answers back to the pod."""

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
from trainyard.podruntime.egress.egress_policy import Endpoint, Quota, is_pod
from trainyard.podruntime.egress.ip_packets import Flow
from trainyard.podruntime.egress.relay_loop import Poll
from trainyard.podruntime.egress.spoofed_replies import Replies

_AT_ONCE = 64
_MOST_BYTES = 65535
_IP_ORIGDSTADDR = 20
_UNANSWERED_SECONDS, _ANSWERED_SECONDS = 30.0, 120.0


class _Association:
    def __init__(self, flow: Flow, place: Endpoint, outside: socket.socket, quoted: bytes) -> None:
        self.flow, self.place, self.outside, self.quoted = flow, place, outside, quoted
        self.used_at = time.monotonic()
        self.patience = _UNANSWERED_SECONDS


class Places(Protocol):
    """Who decides where datagrams go."""

    def place(self, address: bytes, port: int) -> Endpoint:
        """For a pod that begins to send there; raises OSError, which the pod is told of."""

    def outside(self, source: bytes) -> socket.socket:
        """What sends for this pod; raises OSError likewise."""


class Datagrams:
    """A pod that has too many associations loses its oldest."""

    def __init__(self, poll: Poll, replies: Replies, quota: Quota, places: Places) -> None:
        self._poll, self._replies, self._quota, self._places = poll, replies, quota, places
        self._by_pod: dict[bytes, OrderedDict[Flow, _Association]] = defaultdict(OrderedDict)
        poll.every_second(self._sweep)

    def take_from(self, inside: socket.socket) -> None:
        """Of a socket that tells with each datagram where it was sent to."""
        self._poll.watch(inside.fileno(), partial(self._read, inside))

    def _read(self, inside: socket.socket, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                data, extra, _, (source, port) = inside.recvmsg(_MOST_BYTES, 64)
                place = next((c for _, kind, c in extra if kind == _IP_ORIGDSTADDR), b"")
                if len(place) >= 8:
                    (target_port,) = struct.unpack_from(">H", place, 2)
                    flow = Flow(socket.inet_aton(source), port, place[4:8], target_port)
                    self._send(flow, data)

    def _send(self, flow: Flow, data: bytes) -> None:
        if not is_pod(flow.source):
            return
        found = self._by_pod[flow.source].get(flow) or self._associate(flow, len(data))
        if found is None:
            return
        found.used_at = time.monotonic()
        self._by_pod[flow.source].move_to_end(flow)
        try:
            found.outside.send(data)
        except BlockingIOError:
            pass  # lost, as in any network
        except OSError as error:
            self._refused(found, error)

    def _associate(self, flow: Flow, length: int) -> _Association | None:
        quoted = ip_packets.ip_header(flow.source, flow.target, ip_packets.UDP, 8 + length)
        quoted += ip_packets.datagram(flow.source_port, flow.target_port, bytes(length))[:8]
        try:
            place = self._places.place(flow.target, flow.target_port)
        except OSError as error:
            self._replies.unreachable(flow, quoted, error.errno or errno.EACCES)
            return None
        if not self._quota.take(flow.source):
            if not self._by_pod[flow.source]:
                return None  # others have it all
            self._drop(next(iter(self._by_pod[flow.source].values())))
            self._quota.take(flow.source)
        outside = None
        try:
            outside = self._places.outside(flow.source)
            outside.setblocking(False)
            outside.connect(place)
        except OSError as error:
            if outside is not None:
                outside.close()
            self._quota.give_back(flow.source)
            self._replies.unreachable(flow, quoted, error.errno or 0)
            return None
        made = self._by_pod[flow.source][flow] = _Association(flow, place, outside, quoted)
        self._poll.watch(outside.fileno(), partial(self._answer, made))
        return made

    def _answer(self, association: _Association, _: int) -> None:
        try:
            for _turn in range(_AT_ONCE):
                data = association.outside.recv(_MOST_BYTES)
                association.used_at = time.monotonic()
                association.patience = _ANSWERED_SECONDS
                self._replies.datagram(association.flow, data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._refused(association, error)

    def _refused(self, association: _Association, error: OSError) -> None:
        self._replies.unreachable(association.flow, association.quoted, error.errno or 0)

    def keep(self, leads: Callable[[Flow, Endpoint], bool]) -> None:
        """Forget associations that lead where they should not any more."""
        for associations in tuple(self._by_pod.values()):
            for each in tuple(associations.values()):
                if not leads(each.flow, each.place):
                    self._drop(each)

    def forget_pod(self, pod: bytes) -> None:
        for association in list(self._by_pod.get(pod, {}).values()):
            self._drop(association)

    def _drop(self, association: _Association) -> None:
        source = association.flow.source
        self._poll.forget(association.outside.fileno())
        association.outside.close()
        self._quota.give_back(source)
        del self._by_pod[source][association.flow]

    def _sweep(self, now: float) -> None:
        for source, associations in list(self._by_pod.items()):
            for each in list(associations.values()):
                if each.used_at + each.patience < now:
                    self._drop(each)
            if not associations:
                del self._by_pod[source]
