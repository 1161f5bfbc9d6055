"""Rules of the kernel's packet filter (nf_tables) by raw netlink: only what ``tproxy_setup`` needs.

Message layouts: ``linux/netfilter/nfnetlink.h`` and ``nf_tables.h``.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 2, 3, 6
_REQUEST, _ACK, _CREATE, _APPEND = 1, 4, 0x400, 0x800
_NLMSG_ERROR = 2
_IPV4 = 2
_NESTED = 0x8000
_ANSWER_SECONDS = 5.0
_FILTER_ACCEPTS = 1
_META_MARK, _META_INTERFACE, _META_PROTOCOL = 3, 4, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_FIRST, _SECOND = 1, 2
"""Registers of the filter."""


class Item(NamedTuple):
    """A part of a batch; ``what`` names it in errors."""

    what: str
    kind: int
    flags: int
    attributes: bytes


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + b"\0" * (-length % 4)


def _nested(kind: int, *parts: bytes) -> bytes:
    return _attribute(kind | _NESTED, b"".join(parts))


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _expression(name: str, *parts: bytes) -> bytes:
    return _nested(1, _text(1, name), _nested(2, *parts))


def _value(kind: int, data: bytes) -> bytes:
    return _nested(kind, _attribute(1, data))


def _meta(key: int) -> bytes:
    return _expression("meta", _number(1, _FIRST), _number(2, key))


def _compared(data: bytes, *, differs: bool = False) -> bytes:
    return _expression("cmp", _number(1, _FIRST), _number(2, int(differs)), _value(3, data))


def _payload(base: int, offset: int, length: int) -> bytes:
    numbers = ((1, _FIRST), (2, base), (3, offset), (4, length))
    return _expression("payload", *[_number(*pair) for pair in numbers])


def _masked(mask: bytes) -> bytes:
    numbers = (_number(1, _FIRST), _number(2, _FIRST), _number(3, len(mask)))
    return _expression("bitwise", *numbers, _value(4, mask), _value(5, bytes(len(mask))))


def _immediate(data: bytes, register: int = _FIRST) -> bytes:
    return _expression("immediate", _number(1, register), _value(2, data))


def _verdict(code: int) -> bytes:
    return _expression("immediate", _number(1, 0), _nested(2, _nested(2, _number(1, code))))


ACCEPT, DROP = _verdict(1), _verdict(0)
IS_CONNECTING = _payload(_TRANSPORT_HEADER, 13, 1) + _masked(b"\x17") + _compared(b"\x02")
"""Whether, of TCP's control flags, only SYN is set."""


def to_socket(port: int) -> bytes:
    """Hand the packet to the transparent socket at 127.0.0.1, or to its connection."""
    place = _immediate(struct.pack(">H", port))
    place += _immediate(socket.inet_aton("127.0.0.1"), _SECOND)
    return place + _expression("tproxy", _number(1, _IPV4), _number(2, _SECOND), _number(3, _FIRST))


def rejected(code: int) -> bytes:
    """Refuse by ICMP: destination unreachable, with this code."""
    return _expression("reject", _number(1, 0), _attribute(2, bytes([code])))


def has_mark(mark: int) -> bytes:
    return _meta(_META_MARK) + _compared(struct.pack("=I", mark))


def set_mark(mark: int) -> bytes:
    register = _expression("meta", _number(2, _META_MARK), _number(3, _FIRST))
    return _immediate(struct.pack("=I", mark)) + register


def from_other_than(interface: int) -> bytes:
    return _meta(_META_INTERFACE) + _compared(struct.pack("=I", interface), differs=True)


def of_protocol(number: int) -> bytes:
    return _meta(_META_PROTOCOL) + _compared(bytes([number]))


def for_network(address: str, mask: str) -> bytes:
    packed = socket.inet_aton(address)
    return _payload(_NETWORK_HEADER, 16, 4) + _masked(socket.inet_aton(mask)) + _compared(packed)


def table(name: str) -> Item:
    return Item(f"table {name}", _NEW_TABLE, _CREATE, _text(1, name))


def no_table(name: str) -> Item:
    return Item(f"end of table {name}", _DELETE_TABLE, 0, _text(1, name))


def before_routing(table_name: str, chain: str, priority: int) -> Item:
    """A chain that sees packets before they are routed."""
    hook = _nested(4, _number(1, 0), _number(2, priority))
    names = _text(1, table_name) + _text(3, chain)
    rest = hook + _number(5, _FILTER_ACCEPTS) + _text(7, "filter")
    return Item(f"chain {chain}", _NEW_CHAIN, _CREATE, names + rest)


def rule(table_name: str, chain: str, what: str, *expressions: bytes) -> Item:
    """A rule behind those before; ``what`` names it in errors."""
    names = _text(1, table_name) + _text(2, chain)
    return Item(what, _NEW_RULE, _CREATE | _APPEND, names + _nested(4, *expressions))


def apply(items: list[Item]) -> None:
    """Apply all items or none, in this process's network namespace; raises OSError."""
    number, named = 0, {}
    parts = [_message(number, _BATCH_BEGIN, 0, b"", family=0, resource=_SUBSYSTEM)]
    for number, item in enumerate(items, 1):
        kind = _SUBSYSTEM << 8 | item.kind
        parts.append(_message(number, kind, item.flags | _ACK, item.attributes))
        named[number] = item.what
    parts.append(_message(number + 1, _BATCH_END, 0, b"", family=0, resource=_SUBSYSTEM))
    try:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    except OSError as error:
        raise OSError(error.errno, f"the kernel's packet filter: {error.strerror}") from None
    with link:
        link.bind((0, 0))
        link.settimeout(_ANSWER_SECONDS)
        link.send(b"".join(parts))
        while named:
            _read(link.recv(1 << 16), named)


def _message(
    number: int, kind: int, flags: int, data: bytes, family: int = _IPV4, resource: int = 0
) -> bytes:
    head = struct.pack("=IHHII", 20 + len(data), kind, flags | _REQUEST, number, 0)
    return head + struct.pack(">BBH", family, 0, resource) + data


def _read(answer: bytes, named: dict[int, str]) -> None:
    """Remove what is acknowledged from ``named``; raises OSError for the first refused item."""
    while len(answer) >= 20:
        length, kind, _, number, _ = struct.unpack_from("=IHHII", answer)
        if kind == _NLMSG_ERROR:
            (code,) = struct.unpack_from("=i", answer, 16)
            what = named.pop(number, "batch")
            if code:
                raise OSError(-code, f"{what}: {os.strerror(-code)}")
        answer = answer[(length + 3) & ~3 :]
