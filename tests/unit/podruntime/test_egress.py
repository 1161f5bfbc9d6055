"""The parts of egress that need no network: packets, policy, limits."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from trainyard.podruntime.egress import ip_packets
from trainyard.podruntime.egress.dns.dns_upstream import parse_servers
from trainyard.podruntime.egress.egress_policy import Denied, EgressPolicy, PodQuota, Routes, is_pod
from trainyard.podruntime.egress.tcp_streams import buffer_bytes

POD, TARGET = socket.inet_aton("10.244.0.5"), socket.inet_aton("192.0.2.80")


def syn(*, head: bytes = b"", options: bytes = b"", flags: int = 2, protocol: int = 6) -> bytes:
    first, total = 0x40 | 5 + len(head) // 4, 40 + len(head) + len(options)
    ip = struct.pack(">BBHHHBBH4s4s", first, 0, total, 1, 0, 64, protocol, 0, POD, TARGET)
    words = 5 + len(options) // 4 << 4
    segment = struct.pack(">HHIIBBHHH", 1234, 80, 7, 0, words, flags, 1000, 0xBAD, 0)
    return ip + head + segment + options


def has_valid_checksum(data: bytes) -> bool:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def with_pseudo_header(source: bytes, target: bytes, segment: bytes) -> bytes:
    return source + target + struct.pack(">HH", 6, len(segment)) + segment


def test_the_first_packet_is_sent_again_as_its_pod_meant_it() -> None:
    options = bytes.fromhex("020405b40402080a0000000100000000")
    parse_opening = ip_packets.parse_opening(syn(head=b"\x83\x03\x04\0", options=options))
    assert parse_opening is not None
    assert parse_opening.flow == (POD, 1234, TARGET, 80)
    resent = parse_opening.resent()
    assert resent[0] == 0x45, "options of IP are left out: they may name another way"
    assert resent[40:] == options
    assert has_valid_checksum(with_pseudo_header(POD, TARGET, resent[20:]))


def test_a_refusal_acknowledges_what_it_refuses() -> None:
    parse_opening = ip_packets.parse_opening(syn())
    assert parse_opening is not None
    answer = ip_packets.reset(parse_opening)
    assert struct.unpack_from(">HHII", answer) == (80, 1234, 0, 8)
    assert answer[13] == 0x14
    assert has_valid_checksum(with_pseudo_header(TARGET, POD, answer))
    quoting = ip_packets.unreachable(ip_packets.PROHIBITED, parse_opening.head)
    assert quoting[:2] == b"\x03\x0d"
    assert has_valid_checksum(quoting)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        syn()[:39],
        syn(flags=3),
        syn(flags=0x12),
        syn(protocol=17),
        b"\x65" + syn()[1:],
        b"\x4f" + syn()[1:],
        syn()[:32] + b"\x40" + syn()[33:],
        syn()[:32] + b"\xf0" + syn()[33:],
    ],
)
def test_what_is_no_first_packet_is_passed_over(packet: bytes) -> None:
    assert ip_packets.parse_opening(packet) is None


@pytest.mark.parametrize("size", [0, 1, 1480, 1481, 9000, 65507])
def test_fragments_are_all_of_it_once(size: int) -> None:
    payload = bytes(n % 251 for n in range(size))
    got = bytearray()
    made = ip_packets.fragments(TARGET, POD, 17, payload, room=1500, number=9)
    for n, packet in enumerate(made):
        (choose_endpoint,) = struct.unpack_from(">H", packet, 6)
        assert len(packet) <= 1500
        assert (choose_endpoint & 0x1FFF) * 8 == len(got)
        assert bool(choose_endpoint & 0x2000) == (n < len(made) - 1)
        got += packet[20:]
    assert bytes(got) == payload


# -- names ----------------------------------------------------------------------------------------


def test_name_servers_are_those_that_the_c_library_asks() -> None:
    text = "# nameserver 1.1.1.1\nnameserver 192.0.2.1\nnameserver ::1\nnameserver not-one\n"
    text += "options ndots:5\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver\n"
    assert [each.address[0] for each in parse_servers(text)] == ["192.0.2.1", "::1", "192.0.2.2"]
    assert [each.address[:2] for each in parse_servers("")] == [("127.0.0.1", 53)]


# -- who may go where, and how much ----------------------------------------------------------------


NEVER = """
127.0.0.1 127.9.9.9 0.0.0.0 10.244.0.1 10.244.7.7 10.96.0.1 169.254.169.254 169.254.1.1
168.63.129.16 100.100.100.200 192.0.0.192 224.0.0.1 239.0.0.1 240.0.0.1 255.255.255.255
"""


@pytest.fixture
def policy() -> Iterator[EgressPolicy]:
    with contextlib.closing(Routes()) as routes:
        yield EgressPolicy(routes)


@pytest.mark.parametrize("address", NEVER.split())
def test_never(policy: EgressPolicy, address: str) -> None:
    policy.ports = frozenset({80})
    with pytest.raises(Denied):
        policy.choose_endpoint(socket.inet_aton(address), 80)


def test_the_machine_only_by_its_name_and_what_is_allowed(policy: EgressPolicy) -> None:
    policy.ports = frozenset({5432})
    host = socket.inet_aton("169.254.74.1")
    assert policy.choose_endpoint(host, 5432) == ("127.0.0.1", 5432)
    with pytest.raises(Denied):
        policy.choose_endpoint(host, 5433)


def test_only_pods_are_pods() -> None:
    assert is_pod(POD)
    for address in ("10.244.0.1", "10.245.0.2", "127.0.0.1", "10.96.0.1"):
        assert not is_pod(socket.inet_aton(address))


def test_a_quota_is_of_each_and_of_all() -> None:
    quota = PodQuota(2, 3)
    assert [quota.take(b"a"), quota.take(b"a"), quota.take(b"a")] == [True, True, False]
    assert [quota.take(b"b"), quota.take(b"b")] == [True, False]
    quota.give_back(b"a")
    assert quota.take(b"c")
    assert quota.sum == 3


def test_many_connections_have_small_buffers() -> None:
    sizes = [buffer_bytes(count) for count in (0, 15, 16, 255, 256, 10000)]
    assert sizes == [0, 0, 512 << 10, 512 << 10, 64 << 10, 64 << 10]
