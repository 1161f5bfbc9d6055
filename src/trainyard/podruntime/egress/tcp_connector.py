"""New TCP connections: caught, connected outside, and only then accepted.

The pod's first packet waits while the relay connects. On success the packet is sent again with a
mark, and the kernel completes the connection with the relay. On failure the pod is refused with the
same error.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from functools import partial

from trainyard.podruntime.egress import ip_packets
from trainyard.podruntime.egress.egress_policy import Denied, EgressPolicy, PodQuota, is_pod
from trainyard.podruntime.egress.ip_packets import Flow, Opening
from trainyard.podruntime.egress.relay_loop import OUT, RelayLoop
from trainyard.podruntime.egress.spoofed_replies import SpoofedReplies
from trainyard.podruntime.egress.tcp_streams import TcpStreams, buffer_bytes

_AT_ONCE = 64
_PACKET_BYTES = 2048
_CONNECT_SECONDS = 130.0
"""Longer than the kernel's own connect timeout."""
_ACCEPT_SECONDS = 20.0
"""For a pod to complete a connection that was made outside."""


class _Attempt:
    """``connected_at``: monotonic seconds, 0 before."""

    def __init__(self, opening: Opening, outside: socket.socket) -> None:
        self.opening, self.outside = opening, outside
        self.began_at = time.monotonic()
        self.connected_at = 0.0


class TcpConnector:
    """``caught``, ``listener`` and ``resend`` are sockets of ``tproxy_setup``."""

    def __init__(
        self,
        caught: socket.socket,
        listener: socket.socket,
        resend: socket.socket,
        loop: RelayLoop,
        replies: SpoofedReplies,
        streams: TcpStreams,
        quota: PodQuota,
        policy: EgressPolicy,
    ) -> None:
        self._caught, self._listener, self._resend = caught, listener, resend
        self._loop, self._replies, self._streams = loop, replies, streams
        self._quota = quota
        self._policy = policy
        self._attempts: dict[Flow, _Attempt] = {}
        loop.watch(caught.fileno(), self._read)
        loop.watch(listener.fileno(), self._accept)
        loop.every_second(self._drop_late)

    def _read(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _turn in range(_AT_ONCE):
                opening = ip_packets.parse_opening(self._caught.recv(_PACKET_BYTES))
                if opening is not None and is_pod(opening.flow.source):
                    self._open(opening)

    def _open(self, opening: Opening) -> None:
        flow = opening.flow
        before = self._attempts.get(flow)
        if before is not None and before.opening.sequence == opening.sequence:
            if before.connected_at:
                self._resend_first_packet(flow, before)  # the packet sent again may have been lost
            return
        if before is not None:  # the pod has given up, and uses the port for a new connection
            self._drop(flow)
        try:
            endpoint = self._policy.choose_endpoint(flow.target, flow.target_port)
        except Denied:
            self._replies.refuse(opening, errno.EACCES)
            return
        if not self._quota.take(flow.source):
            self._replies.refuse(opening, errno.ECONNREFUSED)
            return
        self._connect(opening, endpoint)

    def _connect(self, opening: Opening, endpoint: tuple[str, int]) -> None:
        flow = opening.flow
        try:
            outside = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:  # too many open files
            self._quota.give_back(flow.source)
            self._replies.refuse(opening, error.errno or errno.EMFILE)
            return
        if size := buffer_bytes(self._quota.sum):  # only effective before the connection is made
            outside.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self._attempts[flow] = _Attempt(opening, outside)
        code = outside.connect_ex(endpoint)
        if code == errno.EINPROGRESS:
            self._loop.watch(outside.fileno(), partial(self._on_writable, flow), OUT)
        else:
            self._on_connect_result(flow, code)

    def _on_writable(self, flow: Flow, _: int) -> None:
        attempt = self._attempts[flow]
        self._loop.unwatch(attempt.outside.fileno())
        self._on_connect_result(
            flow, attempt.outside.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        )

    def _on_connect_result(self, flow: Flow, error: int) -> None:
        attempt = self._attempts[flow]
        if not error:
            attempt.connected_at = time.monotonic()
            self._resend_first_packet(flow, attempt)
            return
        self._drop(flow)
        self._replies.refuse(attempt.opening, error)

    def _resend_first_packet(self, flow: Flow, attempt: _Attempt) -> None:
        with contextlib.suppress(OSError):  # lost as in any network: the pod will send it again
            self._resend.sendto(attempt.opening.resent(), (socket.inet_ntoa(flow.target), 0))

    def _accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _turn in range(_AT_ONCE):
                inside, (source, source_port) = self._listener.accept()
                target, target_port = inside.getsockname()
                ends = socket.inet_aton(source), socket.inet_aton(target)
                flow = Flow(ends[0], source_port, ends[1], target_port)
                attempt = self._attempts.pop(flow, None)
                if attempt is None:  # from a previous relay, or never asked for
                    inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    inside.close()
                    continue
                ended = partial(self._quota.give_back, flow.source)
                self._streams.join(flow.source, inside, attempt.outside, ended)

    def forget_pod(self, pod: bytes) -> None:
        for flow in [flow for flow in self._attempts if flow.source == pod]:
            self._drop(flow)

    def _drop(self, flow: Flow) -> None:
        attempt = self._attempts.pop(flow)
        self._loop.unwatch(attempt.outside.fileno())
        attempt.outside.close()
        self._quota.give_back(flow.source)

    def _drop_late(self, now: float) -> None:
        late = [
            flow
            for flow, attempt in self._attempts.items()
            if attempt.began_at < now - _CONNECT_SECONDS
            or 0 < attempt.connected_at < now - _ACCEPT_SECONDS
        ]
        for flow in late:
            self._drop(flow)
