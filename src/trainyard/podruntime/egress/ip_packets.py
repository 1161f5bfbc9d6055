"""IP packets that the relay reads and writes itself: a connection's first packet, and refusals."""

from __future__ import annotations

import struct
from typing import NamedTuple

TCP, UDP, ICMP = 6, 17, 1
HEADER_BYTES = 20
PORT_UNREACHABLE, NETWORK_UNKNOWN, PROHIBITED = 3, 6, 13
"""ICMP codes, of those that Linux reports to programs at once, for UDP too."""
_UNREACHABLE = 3
_MORE_FRAGMENTS = 0x2000
_ACK_RST = 0x14


class Flow(NamedTuple):
    """A flow's two ends; addresses as four bytes."""

    source: bytes
    source_port: int
    target: bytes
    target_port: int


class Opening(NamedTuple):
    """The first packet of a connection."""

    flow: Flow
    sequence: int
    segment: bytes
    """Its TCP header with options. Data, if any, is dropped, and will be sent again."""

    @property
    def head(self) -> bytes:
        """What ICMP quotes of it."""
        flow = self.flow
        return ip_header(flow.source, flow.target, TCP, len(self.segment)) + self.segment[:8]

    def resent(self) -> bytes:
        """The packet rebuilt: without IP options, and with the checksum that pods leave to
        hardware."""
        flow = self.flow
        header = ip_header(flow.source, flow.target, TCP, len(self.segment))
        return header + _with_checksum(flow.source, flow.target, self.segment)


def parse_opening(packet: bytes) -> Opening | None:
    """Parse a caught packet; None if it is not a connection's first."""
    if len(packet) < 2 * HEADER_BYTES or packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    start = (packet[0] & 15) * 4
    if start < HEADER_BYTES or len(packet) < start + HEADER_BYTES:
        return None
    end = start + (packet[start + 12] >> 4) * 4
    if end < start + HEADER_BYTES or len(packet) < end or packet[start + 13] & 0x17 != 0x02:
        return None
    source_port, target_port, sequence = struct.unpack_from(">HHI", packet, start)
    flow = Flow(packet[12:16], source_port, packet[16:20], target_port)
    return Opening(flow, sequence, packet[start:end])


def ip_header(
    source: bytes, target: bytes, protocol: int, length: int, fragment: int = 0, number: int = 0
) -> bytes:
    """The kernel fills in the checksum. ``fragment``: flags and offset."""
    total = HEADER_BYTES + length
    fields = (0x45, 0, total, number, fragment, 64, protocol, 0, source, target)
    return struct.pack(">BBHHHBBH4s4s", *fields)


def reset(opening: Opening) -> bytes:
    """The TCP segment that refuses a connection (RST)."""
    flow, acknowledged = opening.flow, (opening.sequence + 1) & 0xFFFFFFFF
    ports = (flow.target_port, flow.source_port)
    segment = struct.pack(">HHIIBBHHH", *ports, 0, acknowledged, 0x50, _ACK_RST, 0, 0, 0)
    return _with_checksum(flow.target, flow.source, segment)


def unreachable(code: int, quoted: bytes) -> bytes:
    """The ICMP message; ``quoted`` is the IP header and eight bytes of the refused packet."""
    message = struct.pack(">BBHI", _UNREACHABLE, code, 0, 0) + quoted
    return message[:2] + struct.pack(">H", _checksum(message)) + message[4:]


def datagram(source_port: int, target_port: int, data: bytes) -> bytes:
    """A UDP datagram; without a checksum, which IPv4 permits."""
    return struct.pack(">HHHH", source_port, target_port, 8 + len(data), 0) + data


def fragments(
    source: bytes, target: bytes, protocol: int, payload: bytes, *, room: int, number: int
) -> list[bytes]:
    """The payload in packets of at most ``room`` bytes; ``number`` marks which belong together."""
    if HEADER_BYTES + len(payload) <= room:
        return [ip_header(source, target, protocol, len(payload)) + payload]
    step = (room - HEADER_BYTES) & ~7
    made = []
    for offset in range(0, len(payload), step):
        part = payload[offset : offset + step]
        flags = _MORE_FRAGMENTS if offset + step < len(payload) else 0
        place = flags | offset >> 3
        made.append(ip_header(source, target, protocol, len(part), place, number) + part)
    return made


def _with_checksum(source: bytes, target: bytes, segment: bytes) -> bytes:
    blank = segment[:16] + b"\0\0" + segment[18:]
    total = _checksum(source + target + struct.pack(">HH", TCP, len(blank)) + blank)
    return segment[:16] + struct.pack(">H", total) + segment[18:]


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) & 1)
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return ~total & 0xFFFF
