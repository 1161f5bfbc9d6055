"""Packets that the relay sends to pods in the name of hosts outside."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket

from trainyard.podruntime.egress import ip_packets

_ROOM = 1500
"""The largest packet, in bytes, that every pod's interface takes."""
_CODES = {
    errno.ECONNREFUSED: ip_packets.PORT_UNREACHABLE,
    errno.ENETUNREACH: ip_packets.NETWORK_UNKNOWN,
}


class SpoofedReplies:
    """``raw``: a raw IP socket in the cluster's namespace."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._numbers = itertools.cycle(range(1, 1 << 16))

    def refuse(self, opening: ip_packets.Opening, error: int) -> None:
        """Have the pod's ``connect`` fail as ours did, with this error number."""
        flow = opening.flow
        if error in (errno.ECONNREFUSED, errno.ECONNRESET):
            self._send(flow.target, flow.source, ip_packets.TCP, ip_packets.reset(opening))
        else:
            self.unreachable(flow, opening.head, error)

    def unreachable(self, flow: ip_packets.Flow, quoted: bytes, error: int) -> None:
        """Refuse by ICMP, quoting the head of a packet. Most errors become EHOSTUNREACH."""
        payload = ip_packets.unreachable(_CODES.get(error, ip_packets.PROHIBITED), quoted)
        self._send(flow.target, flow.source, ip_packets.ICMP, payload)

    def datagram(self, flow: ip_packets.Flow, data: bytes) -> None:
        """Send data back to the flow's source."""
        payload = ip_packets.datagram(flow.target_port, flow.source_port, data)
        self._send(flow.target, flow.source, ip_packets.UDP, payload)

    def _send(self, source: bytes, target: bytes, protocol: int, payload: bytes) -> None:
        place, number = (socket.inet_ntoa(target), 0), next(self._numbers)
        # A full buffer drops packets, as any network does.
        with contextlib.suppress(OSError):
            for packet in ip_packets.fragments(
                source, target, protocol, payload, room=_ROOM, number=number
            ):
                self._raw.sendto(packet, place)
