"""DNS messages, as far as pods' look-ups need them: RFC 1035, 2782 (SRV) and 6891 (EDNS)."""

from __future__ import annotations

import struct
from typing import NamedTuple

A, CNAME, PTR, TXT, AAAA, SRV = 1, 5, 12, 16, 28, 33
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
MAX_MESSAGE_BYTES = 65535
"""Bytes of a message over TCP."""
_OPTIONS = 41
_INTERNET = 1
_HEADER_BYTES = 12
_RESPONSE, _OPCODE_AND_RESPONSE = 0x8000, 0xF800
_AUTHORITATIVE, _TRUNCATED, _WANTED, _AVAILABLE = 0x0400, 0x0200, 0x0100, 0x0080
"""Recursion desired, and recursion available."""
_CODE = 0x000F
_POINTER = 0xC000
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_FEWEST_ROOM, _MOST_ROOM = 512, 4096
_TTL_SECONDS = 5


class DnsQuestion(NamedTuple):
    """A query. ``message`` is as it was sent; the question in it ends at ``end``.

    A UDP answer may have ``max_bytes``. ``is_extended``: the query has an EDNS record, and so has
    the answer.
    """

    message: bytes
    name: str
    kind: int
    end: int
    max_bytes: int = _FEWEST_ROOM
    is_extended: bool = False


class DnsRecord(NamedTuple):
    """``target``: a name that follows ``data``. ``ttl`` in seconds."""

    name: str
    kind: int
    data: bytes = b""
    target: str = ""
    ttl: int = _TTL_SECONDS


class DnsAnswer(NamedTuple):
    """``additional``: records the client would ask for next. ``is_truncated``: some are missing."""

    code: int
    records: tuple[DnsRecord, ...] = ()
    additional: tuple[DnsRecord, ...] = ()
    is_truncated: bool = False


def read_question(message: bytes) -> DnsQuestion:
    """Parse a query; raises ValueError if it is not exactly one question."""
    if len(message) < _HEADER_BYTES:
        raise ValueError("too short")
    _, flags, count, answers, authorities, additional = struct.unpack_from(">HHHHHH", message)
    if flags & _OPCODE_AND_RESPONSE or count != 1:
        raise ValueError("not one question")
    labels, place = [], _HEADER_BYTES
    while place < len(message) and (length := message[place]):
        if length > _LONGEST_LABEL:
            raise ValueError("compressed")
        labels.append(message[place + 1 : place + 1 + length])
        place += 1 + length
    end = place + 5
    if end > len(message):
        raise ValueError("cut off")
    name = b".".join(labels).decode("ascii", "replace").lower()
    asked = DnsQuestion(message, name, struct.unpack_from(">H", message, place + 1)[0], end)
    if (
        additional
        and not answers
        and not authorities
        and len(message) >= end + 11
        and not message[end]
    ):
        kind, max_bytes = struct.unpack_from(">HH", message, end + 1)
        if kind == _OPTIONS:
            max_bytes = min(max(max_bytes, _FEWEST_ROOM), _MOST_ROOM)
            return asked._replace(max_bytes=max_bytes, is_extended=True)
    return asked


def build_query(number: bytes, name: str, kind: int) -> bytes:
    """A query; ``number`` has two bytes. Raises ValueError for an invalid name."""
    head = number + struct.pack(">HHHHH", _WANTED, 1, 0, 0, 0)
    return head + _encode_name(name) + struct.pack(">HH", kind, _INTERNET)


def build_answer(
    asked: DnsQuestion, answer: DnsAnswer, max_bytes: int = MAX_MESSAGE_BYTES
) -> bytes:
    """An answer of at most ``max_bytes``, marked as truncated if records had to be left out."""
    own = _RESPONSE | _AUTHORITATIVE | _AVAILABLE | answer.code
    flags = own | struct.unpack_from(">H", asked.message, 2)[0] & _WANTED
    body = asked.message[_HEADER_BYTES : asked.end]
    options = struct.pack(">BHHIH", 0, _OPTIONS, _MOST_ROOM, 0, 0) if asked.is_extended else b""
    max_bytes -= len(options)
    places = {asked.name: _HEADER_BYTES}
    is_truncated, counts = answer.is_truncated, [0, 0]
    for section, records in enumerate((answer.records, answer.additional)):
        for record in records:
            written = _encode_record(record, places, _HEADER_BYTES + len(body))
            if _HEADER_BYTES + len(body) + len(written) > max_bytes:
                is_truncated |= section == 0
                break
            body += written
            counts[section] += 1
    flags |= _TRUNCATED if is_truncated else 0
    numbers = (flags, 1, counts[0], 0, counts[1] + bool(options))
    return asked.message[:2] + struct.pack(">HHHHH", *numbers) + body + options


def read_answer(message: bytes, asked_kind: int) -> DnsAnswer:
    """Parse a name server's answer: records of this kind, and aliases. Raises ValueError."""
    try:
        _, flags, questions, count, _, _ = struct.unpack_from(">HHHHHH", message)
        place = _HEADER_BYTES
        for _turn in range(questions):
            place = _read_name(message, place)[1] + 4
        found = []
        for _turn in range(count):
            name, place = _read_name(message, place)
            kind, _, ttl, length = struct.unpack_from(">HHIH", message, place)
            place += 10
            if kind == CNAME:
                found.append(DnsRecord(name, kind, b"", _read_name(message, place)[0], ttl))
            elif kind == asked_kind:
                found.append(DnsRecord(name, kind, message[place : place + length], "", ttl))
            place += length
    except (struct.error, IndexError):
        raise ValueError("cut off") from None
    if place > len(message):
        raise ValueError("cut off")
    return DnsAnswer(flags & _CODE, tuple(found), (), bool(flags & _TRUNCATED))


def is_answer_to(message: bytes, asked: bytes) -> bool:
    """Whether it may be the answer to the query ``asked``."""
    has_head = len(message) >= _HEADER_BYTES and message[:2] == asked[:2]
    return has_head and bool(message[2] & _RESPONSE >> 8)


def reversed_address(name: str) -> str:
    """The address in a name such as 4.3.2.1.in-addr.arpa; "" for any other name."""
    parts = name.removesuffix(".in-addr.arpa").split(".")
    return ".".join(reversed(parts)) if name.endswith(".in-addr.arpa") and len(parts) == 4 else ""


def _encode_record(record: DnsRecord, places: dict[str, int], at: int) -> bytes:
    """Encode a record. ``places`` keeps where names stand, for compression."""
    known = places.get(record.name)
    if known is None or known >= 1 << 14:
        owner = _encode_name(record.name)
        places[record.name] = at
    else:
        owner = struct.pack(">H", _POINTER | known)
    data = record.data
    if record.target:
        places.setdefault(record.target, at + len(owner) + 10 + len(data))
        data += _encode_name(record.target)
    head = struct.pack(">HHIH", record.kind, _INTERNET, record.ttl, len(data))
    return owner + head + data


def _encode_name(name: str) -> bytes:
    labels = [label.encode("latin-1") for label in name.rstrip(".").split(".")]
    if len(name) > _LONGEST_NAME or not all(0 < len(each) <= _LONGEST_LABEL for each in labels):
        raise ValueError(f"{name!r} is no name")
    return b"".join(bytes([len(each)]) + each for each in labels) + b"\0"


def _read_name(message: bytes, place: int) -> tuple[str, int]:
    """Read a name, and where it ends; raises IndexError and ValueError."""
    labels: list[bytes] = []
    end, jumps = 0, 0
    while length := message[place]:
        if length & 0xC0 == 0xC0:
            end = end or place + 2
            place = (length & 0x3F) << 8 | message[place + 1]
            jumps += 1
        elif length > _LONGEST_LABEL:
            raise ValueError("no label")
        else:
            labels.append(message[place + 1 : place + 1 + length])
            place += 1 + length
        if jumps > _LONGEST_LABEL or len(labels) > _LONGEST_NAME:
            raise ValueError("an endless name")
    if any(b"." in label for label in labels):
        raise ValueError("a dot in a label")
    return b".".join(labels).decode("latin-1").lower() or ".", end or place + 1
