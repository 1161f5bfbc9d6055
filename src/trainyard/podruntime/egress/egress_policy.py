"""Where pods may connect: to what the machine reaches, but not to the machine (decision 249)."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter

HOST_NAME = "host.trainyard.internal"
HOST_ADDRESS = "169.254.74.1"
"""The machine's loopback as pods see it. They reach the ports that are allowed."""
_PODS, _GATEWAY = b"\x0a\xf4", b"\0\1"
"""The pods' network, 10.244.0.0/16, and the gateway in it."""


def _network(text: str) -> tuple[int, int]:
    """Number and mask."""
    address, _, bits = text.partition("/")
    mask = 0xFFFFFFFF << 32 - int(bits or 32) & 0xFFFFFFFF
    return int.from_bytes(socket.inet_aton(address), "big"), mask


_DENIED = tuple(
    map(
        _network,
        (
            "0.0.0.0/8",
            "127.0.0.0/8",
            "10.244.0.0/16",  # pods
            "10.96.0.0/16",  # Services
            "169.254.0.0/16",  # cloud metadata services
            "168.63.129.16",  # of Azure
            "100.100.100.200",  # of Alibaba
            "192.0.0.192",  # of Oracle
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
_HOST = socket.inet_aton(HOST_ADDRESS)
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_NLMSG_ERROR = 2
_RTA_DST = 1
_UNICAST = 1
_ANSWER_SECONDS = 1.0

Endpoint = tuple[str, int]


class Denied(OSError):
    """Pods may not connect there."""


class Routes:
    """The machine's routing table. Must be made in the machine's namespace."""

    def __init__(self) -> None:
        self._link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._link.settimeout(_ANSWER_SECONDS)
        self._number = 0

    def close(self) -> None:
        self._link.close()

    def leaves_machine(self, address: bytes) -> bool:
        """Whether packets to it leave the machine, or cannot be sent at all."""
        self._number += 1
        target = struct.pack("=HH", 8, _RTA_DST) + address
        route = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0) + target
        head = struct.pack("=IHHII", 16 + len(route), _RTM_GETROUTE, 1, self._number, 0)
        self._link.send(head + route)
        while True:
            answer = self._link.recv(1 << 13)
            _, kind, _, number, _ = struct.unpack_from("=IHHII", answer)
            if number == self._number and kind == _NLMSG_ERROR:
                return True  # connecting reports the error
            if number == self._number and kind == _RTM_NEWROUTE:
                return answer[16 + 7] == _UNICAST  # otherwise an address of the machine itself


class EgressPolicy:
    """Decides about destinations; ``ports`` of the machine's loopback are allowed."""

    def __init__(self, routes: Routes) -> None:
        self.ports: frozenset[int] = frozenset()
        self._routes = routes

    def choose_endpoint(self, address: bytes, port: int) -> Endpoint:
        """Where to connect for a pod that asks for this destination; raises Denied."""
        if address == _HOST:
            if port not in self.ports:
                raise Denied
            return "127.0.0.1", port
        number = int.from_bytes(address, "big")
        if not port or any(number & mask == network for network, mask in _DENIED):
            raise Denied
        with contextlib.suppress(OSError):
            if self._routes.leaves_machine(address):
                return socket.inet_ntoa(address), port
        raise Denied

    def open_socket(self, source: bytes) -> socket.socket:
        """A socket that sends a pod's datagrams, in the machine's namespace."""
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def is_pod(address: bytes) -> bool:
    return address[:2] == _PODS and address[2:] != _GATEWAY


class PodQuota:
    """Limits how many resources each pod holds at a time, and all pods together."""

    def __init__(self, each: int, total: int) -> None:
        self._each, self._total = each, total
        self._taken: Counter[bytes] = Counter()
        self.sum = 0

    def take(self, source: bytes) -> bool:
        """Take one more; False where there is no room."""
        if self.sum >= self._total or self._taken[source] >= self._each:
            return False
        self._taken[source] += 1
        self.sum += 1
        return True

    def give_back(self, source: bytes) -> None:
        """Count one connection less of a pod, by its address's four bytes."""
        self.sum -= 1
        self._taken[source] -= 1
        if not self._taken[source]:
            del self._taken[source]
