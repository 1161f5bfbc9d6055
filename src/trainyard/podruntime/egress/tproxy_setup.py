"""The cluster's end of egress: kernel rules, and the transparent sockets that a relay holds.

The shim makes all of it in the cluster's network namespace. Packets to other networks arrive at the
bridge. A connection's first packet is caught and dropped; the relay sends it again once it has
connected outside. All later ones go to a transparent socket. Nothing is translated, so connections
need no tracking, and what is refused outside is refused to the pod.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from typing import NamedTuple

from trainyard.podruntime.egress import nftables
from trainyard.podruntime.network.netlink import BRIDGE, Netlink

_TABLE, _CHAIN, _PRIORITY = "trainyard", "egress", -150
_MARK = 0x7479
_ROUTES = 100
_TCP_PORT, _UDP_PORT = 7479, 7480
_TCP, _UDP = 6, 17
_PROHIBITED = 13
"""The ICMP code: communication administratively prohibited."""
_PODS, _SERVICES, _MASK = "10.244.0.0", "10.96.0.0", "255.255.0.0"
_IP_TRANSPARENT, IP_RECVORIGDSTADDR = 19, 20
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_MARK = 26, 33, 36
_ETHERNET_IPV4 = 0x0800
_BUFFER_BYTES = 4 << 20
"""Of the receive buffer: a thousand pods may connect at once."""
_BACKLOG = 4096
_SETTINGS = "/proc/sys/net/ipv4/conf"
_BRIDGE_FILTER = "/proc/sys/net/bridge/bridge-nf-call-iptables"
_DNS_PORT = 53


class TproxySockets(NamedTuple):
    """The sockets that a relay needs.

    ``streams`` and ``datagrams`` to other networks, ``caught`` first packets, the raw socket that
    sends them ``again``, one for ``replies``, and two for DNS.
    """

    streams: socket.socket
    datagrams: socket.socket
    caught: socket.socket
    again: socket.socket
    replies: socket.socket
    questions: socket.socket
    long_questions: socket.socket


def open_sockets(gateway: str) -> TproxySockets:
    """Let pods reach other networks through these sockets. On OSError they reach none."""
    opened: list[socket.socket] = []
    try:
        made = _make_all(gateway, opened)
        disable_bridge_netfilter()
        for name in ("all", "lo", BRIDGE):  # packets of pods come back by the loopback interface
            _write(f"{_SETTINGS}/{name}/rp_filter", "0")
        nftables.apply(_rules())
        link = Netlink()
        try:
            with contextlib.suppress(FileExistsError):  # left by an earlier call
                link.add_marked_rule(_MARK, _ROUTES)
            with contextlib.suppress(FileExistsError):
                link.add_local_default(_ROUTES)
        finally:
            link.close()
    except OSError:
        for each in opened:
            each.close()
        close()
        raise
    return made


def close() -> None:
    """Remove the rules: pods reach no other networks."""
    with contextlib.suppress(OSError):
        nftables.apply([nftables.no_table(_TABLE)])


def disable_bridge_netfilter() -> None:
    """Keep br_netfilter from applying these rules on the bridge.

    The module can be loaded at any time, and packets handed over there are lost.
    """
    if os.path.exists(_BRIDGE_FILTER):
        _write(_BRIDGE_FILTER, "0")


def _write(path: str, value: str) -> None:
    with open(path) as file:
        if file.read().strip() == value:
            return
    with open(path, "w") as file:
        file.write(value)


def _rules() -> list[nftables.Item]:
    n = nftables
    rules = (
        ("what the relay sent again", n.has_mark(_MARK), n.of_protocol(_TCP), _to(_TCP_PORT)),
        ("other interfaces", n.from_other_than(socket.if_nametoindex(BRIDGE)), n.ACCEPT),
        ("pods", n.for_network(_PODS, _MASK), n.ACCEPT),
        ("services", n.for_network(_SERVICES, _MASK), n.ACCEPT),
        ("new connections", n.of_protocol(_TCP), n.IS_CONNECTING, n.DROP),
        ("connections", n.of_protocol(_TCP), n.to_socket(_TCP_PORT), n.set_mark(_MARK), n.ACCEPT),
        ("datagrams", n.of_protocol(_UDP), n.to_socket(_UDP_PORT), n.set_mark(_MARK), n.ACCEPT),
        ("the rest", n.rejected(_PROHIBITED)),
    )
    chain = n.before_routing(_TABLE, _CHAIN, _PRIORITY)
    made = [n.rule(_TABLE, _CHAIN, what, *expressions) for what, *expressions in rules]
    return [n.table(_TABLE), chain, *made]


def _to(port: int) -> bytes:
    return nftables.to_socket(port) + nftables.ACCEPT


def _make_all(gateway: str, opened: list[socket.socket]) -> TproxySockets:
    """Open all sockets. On failure those made so far are in ``opened``."""

    def new(family: int, kind: int, protocol: int = 0) -> socket.socket:
        opened.append(socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol))
        return opened[-1]

    streams = new(socket.AF_INET, socket.SOCK_STREAM)
    streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    streams.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    # At any other address pods could connect to the port itself.
    streams.bind(("127.0.0.1", _TCP_PORT))
    streams.listen(_BACKLOG)
    datagrams = new(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    datagrams.setsockopt(socket.SOL_IP, IP_RECVORIGDSTADDR, 1)
    _enlarge(datagrams)
    datagrams.bind(("127.0.0.1", _UDP_PORT))
    # No protocol yet, so that nothing is caught before the filter is attached.
    caught = new(socket.AF_PACKET, socket.SOCK_DGRAM)
    _attach_filter(caught)
    _enlarge(caught)
    caught.bind((BRIDGE, _ETHERNET_IPV4))
    again = new(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    again.setsockopt(socket.SOL_SOCKET, _SO_MARK, _MARK)
    replies = new(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    replies.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    questions = new(socket.AF_INET, socket.SOCK_DGRAM)
    questions.bind((gateway, _DNS_PORT))
    long_questions = new(socket.AF_INET, socket.SOCK_STREAM)
    long_questions.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    long_questions.bind((gateway, _DNS_PORT))
    long_questions.listen(_BACKLOG)
    return TproxySockets(streams, datagrams, caught, again, replies, questions, long_questions)


def _enlarge(one: socket.socket) -> None:
    """Enlarge the receive buffer: a lost first packet is sent again only after a second."""
    try:
        one.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    except PermissionError:  # without root of the machine
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _attach_filter(one: socket.socket) -> None:
    """Catch only first packets of TCP connections to other networks."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in _FILTER)
    kept = ctypes.create_string_buffer(code)
    program = _FilterProgram(len(_FILTER), ctypes.addressof(kept))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))


_WORD, _HALF, _BYTE, _AND, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x28, 0x30, 0x54, 0x15, 0x45, 0x06
_HEADER_LENGTH, _BYTE_BEHIND = 0xB1, 0x50
_FILTER = (
    # Offsets are in the IP header; jumps count instructions to skip.
    (_WORD, 0, 0, 16),  # destination
    (_AND, 0, 0, 0xFFFF0000),
    (_EQUAL, 9, 0, 0x0AF40000),  # pods
    (_EQUAL, 8, 0, 0x0A600000),  # services
    (_HALF, 0, 0, 6),
    (_ANY_BIT, 6, 0, 0x3FFF),  # fragments
    (_BYTE, 0, 0, 9),
    (_EQUAL, 0, 4, _TCP),
    (_HEADER_LENGTH, 0, 0, 0),
    (_BYTE_BEHIND, 0, 0, 13),
    (_AND, 0, 0, 0x17),  # FIN, SYN, RST, ACK
    (_EQUAL, 1, 0, 0x02),
    (_RETURN, 0, 0, 0),
    (_RETURN, 0, 0, 0xFFFF),
)
