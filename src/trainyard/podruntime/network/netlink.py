"""The pod network by raw rtnetlink: one bridge, and a veth pair for each pod.

Only what pods need; no package and no ``ip`` command. Message layouts: rtnetlink(7),
``linux/rtnetlink.h``, ``linux/if_link.h``.
"""

from __future__ import annotations

import os
import socket
import struct

BRIDGE = "trainyard0"
BRIDGE_ADDRESS = "02:74:79:00:00:01"
"""Locally administered. A bridge without an address of its own takes the lowest of its ports'. That
changes with new pods, and connections stall until pods ask for it again."""
LOOPBACK_INDEX = 1
POD_LINK_INDEX = 1000  # beyond lo and the tunnel devices of a fresh network namespace

_NLM_REQUEST_ACK = 0x1 | 0x4
_NLM_CREATE_EXCL = 0x400 | 0x200
_RTM_NEWLINK, _RTM_NEWADDR, _RTM_DELADDR, _RTM_NEWROUTE, _RTM_NEWRULE = 16, 20, 21, 24, 32
_NLM_REQUEST = 0x1
_RTM_GETLINK = 18
_NLMSG_ERROR = 2
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO = 1, 3, 10, 18
_IFLA_LINK, _IFLA_NET_NS_FD = 5, 28
_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 31, 32
_ATTRIBUTE_KIND = 0x3FFF
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_VETH_INFO_PEER = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_OIF, _RTA_GATEWAY = 4, 5
_FRA_PRIORITY, _FRA_FWMARK = 6, 10
_IFF_UP = 1
_NESTED = 0x8000


def _attribute(kind: int, payload: bytes) -> bytes:
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def _nested(kind: int, *parts: bytes) -> bytes:
    return _attribute(kind | _NESTED, b"".join(parts))


def _name(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _link(index: int = 0, *, up: bool = True) -> bytes:
    flag = _IFF_UP if up else 0
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flag, flag)


def _address(address: str, prefix: int, index: int) -> bytes:
    packed = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, index)
    return head + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)


_ONE = struct.pack("=I", 1)
_ONE_QUEUE = _attribute(_IFLA_NUM_TX_QUEUES, _ONE) + _attribute(_IFLA_NUM_RX_QUEUES, _ONE)
# By default a veth has a queue for every processor, and /sys a folder for every queue, though
# nothing ever waits there.


class Netlink:
    """A route socket, which stays in the network namespace in which it was opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def _request(self, what: str, kind: int, payload: bytes, flags: int = 0) -> None:
        self._sequence += 1
        header = struct.pack(
            "=IHHII", 16 + len(payload), kind, _NLM_REQUEST_ACK | flags, self._sequence, 0
        )
        self._socket.sendall(header + payload)
        while True:
            answer = self._socket.recv(8192)
            _, answer_kind, _, sequence, _ = struct.unpack_from("=IHHII", answer)
            if answer_kind == _NLMSG_ERROR and sequence == self._sequence:
                break
        (code,) = struct.unpack_from("=i", answer, 16)
        if code:
            raise OSError(-code, f"{what}: {os.strerror(-code)}")

    def add_bridge(self) -> int:
        """Create the bridge, up; returns its interface index."""
        kind = _nested(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"bridge"))
        address = _attribute(_IFLA_ADDRESS, bytes.fromhex(BRIDGE_ADDRESS.replace(":", "")))
        payload = _link() + address + _name(BRIDGE) + kind
        self._request("create the pod bridge", _RTM_NEWLINK, payload, _NLM_CREATE_EXCL)
        return socket.if_nametoindex(BRIDGE)

    def add_pod_link(self, number: int, bridge_index: int, pod_namespace: int) -> None:
        """Create a veth pair: ``pod<number>`` (up) on the bridge, ``eth0`` (down) in the pod.

        Both indexes are set: the kernel heeds the peer's only together with the other.
        """
        peer = (
            _link(POD_LINK_INDEX, up=False)  # cannot be up: its other end does not exist yet
            + _name("eth0")
            + _ONE_QUEUE
            + _attribute(_IFLA_NET_NS_FD, struct.pack("=i", pod_namespace))
        )
        info = _nested(
            _IFLA_LINKINFO,
            _attribute(_IFLA_INFO_KIND, b"veth"),
            _nested(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, peer)),
        )
        master = _attribute(_IFLA_MASTER, struct.pack("=i", bridge_index))
        named = _link(POD_LINK_INDEX + number) + _name(f"pod{number}") + _ONE_QUEUE
        payload = named + master + info
        self._request("create the pod's interface", _RTM_NEWLINK, payload, _NLM_CREATE_EXCL)

    def set_up(self, index: int) -> None:
        self._request("set the interface up", _RTM_NEWLINK, _link(index))

    def set_down(self, index: int) -> None:
        payload = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, _IFF_UP)
        self._request("set the interface down", _RTM_NEWLINK, payload)

    def peer_of(self, index: int) -> int:
        """The index of a veth pair's other end, in that end's namespace."""
        self._sequence += 1
        payload = _link(index, up=False)
        header = struct.pack(
            "=IHHII", 16 + len(payload), _RTM_GETLINK, _NLM_REQUEST, self._sequence, 0
        )
        self._socket.sendall(header + payload)
        answer = self._socket.recv(1 << 16)
        if struct.unpack_from("=H", answer, 4)[0] == _NLMSG_ERROR:
            (code,) = struct.unpack_from("=i", answer, 16)
            raise OSError(-code, f"find the interface: {os.strerror(-code)}")
        offset = 16 + len(payload)
        while offset < len(answer):
            length, kind = struct.unpack_from("=HH", answer, offset)
            if kind & _ATTRIBUTE_KIND == _IFLA_LINK:
                return int(struct.unpack_from("=I", answer, offset + 4)[0])
            offset += length + -length % 4
        raise OSError("the interface has no other end")

    def add_address(self, address: str, prefix: int, index: int = POD_LINK_INDEX) -> None:
        payload = _address(address, prefix, index)
        self._request(f"add address {address}", _RTM_NEWADDR, payload, _NLM_CREATE_EXCL)

    def remove_address(self, address: str, prefix: int, index: int) -> None:
        payload = _address(address, prefix, index)
        self._request(f"remove address {address}", _RTM_DELADDR, payload)

    def add_default_route(self, gateway: str) -> None:
        main_table, boot_protocol, universe, unicast = 254, 3, 0, 1
        payload = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, main_table, boot_protocol, universe, unicast, 0
        )
        payload += _attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
        payload += _attribute(_RTA_OIF, struct.pack("=i", POD_LINK_INDEX))
        self._request("add the default route", _RTM_NEWROUTE, payload, _NLM_CREATE_EXCL)

    def add_marked_rule(self, mark: int, table: int) -> None:
        """Route packets with this mark by the routes of ``table``."""
        to_table = 1
        payload = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, table, 0, 0, to_table, 0)
        payload += _attribute(_FRA_FWMARK, struct.pack("=I", mark))
        payload += _attribute(_FRA_PRIORITY, struct.pack("=I", table))
        self._request("add the rule for marked packets", _RTM_NEWRULE, payload, _NLM_CREATE_EXCL)

    def add_local_default(self, table: int) -> None:
        """In ``table``, deliver every address locally."""
        boot_protocol, this_host, local = 3, 254, 2
        payload = struct.pack(
            "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, table, boot_protocol, this_host, local, 0
        )
        payload += _attribute(_RTA_OIF, struct.pack("=i", LOOPBACK_INDEX))
        self._request("add the local route", _RTM_NEWROUTE, payload, _NLM_CREATE_EXCL)
