"""DNS answers that are given without asking a name server, and their encoding."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence

import pytest

from trainyard.podruntime.egress.dns import dns_local_answers, dns_messages
from trainyard.podruntime.egress.dns.cluster_zone import ClusterZone
from trainyard.podruntime.egress.dns.dns_messages import (
    AAAA,
    CNAME,
    PTR,
    SRV,
    TXT,
    A,
    DnsAnswer,
    DnsRecord,
)
from trainyard.podruntime.protocol import Name, Named, SetNames

EXTENDED = struct.pack(">BHHIH", 0, 41, 1232, 0, 0)


def query_bytes(name: str, kind: int = A, more: bytes = b"") -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, bool(more))
    return head + labels + b"\0" + struct.pack(">HH", kind, 1) + more


def zone(**services: Named) -> ClusterZone:
    made = ClusterZone()
    made.set(SetNames({f"ns/{name}": json.dumps(named) for name, named in services.items()}, True))
    return made


HTTP = ("_http._tcp", "_dns._udp")
WEB = Named((Name("10.96.0.7", "", (80, 53)),), HTTP)
DB = Named(
    (Name("10.244.0.2", "db-0", (8080, 0)), Name("10.244.0.3", "", (8080, 53))),
    HTTP,
    is_headless=True,
)
ZONE = zone(
    web=WEB,
    db=DB,
    inside=Named((Name("10.244.0.2"),), alias="db.ns.svc.cluster.local."),
    outside=Named(alias="Data.example.org"),
    second=Named(alias="outside.ns.svc.cluster.local"),
    circle=Named(alias="circle.ns.svc.cluster.local"),
    host=Named(alias="host.trainyard.internal"),
    dangling=Named(alias="nobody.ns.svc.cluster.local"),
)


def local_answer(name: str, kind: int = A, among: ClusterZone = ZONE) -> tuple[int, list[str], str]:
    """The code, what is answered, and whom to ask for the rest."""
    answer_locally = dns_local_answers.answer_locally(
        dns_messages.read_question(query_bytes(name, kind)), among
    )
    assert answer_locally is not None
    shown = [record_text(each) for each in answer_locally.answer.records]
    return answer_locally.answer.code, shown, answer_locally.elsewhere


def record_text(record: DnsRecord) -> str:
    if record.kind == A:
        return socket.inet_ntoa(record.data)
    if record.kind == SRV:
        numbers = " ".join(map(str, struct.unpack(">HHH", record.data)))
        return f"{numbers} {record.target}"
    return record.target or record.data.decode()


BELOW = "ns.svc.cluster.local"
EXISTING: Sequence[tuple[str, int, list[str]]] = [
    (f"web.{BELOW}", A, ["10.96.0.7"]),
    (f"WEB.{BELOW}", A, ["10.96.0.7"]),
    (f"web.{BELOW}", AAAA, []),
    (f"web.{BELOW}", SRV, []),
    (f"_http._tcp.web.{BELOW}", SRV, [f"0 100 80 web.{BELOW}"]),
    (f"_http._tcp.web.{BELOW}", A, []),
    (f"_tcp.web.{BELOW}", SRV, []),
    (f"db.{BELOW}", A, ["10.244.0.2", "10.244.0.3"]),
    (f"db-0.db.{BELOW}", A, ["10.244.0.2"]),
    (f"10-244-0-3.db.{BELOW}", A, ["10.244.0.3"]),
    (
        f"_http._tcp.db.{BELOW}",
        SRV,
        [f"0 50 8080 db-0.db.{BELOW}", f"0 50 8080 10-244-0-3.db.{BELOW}"],
    ),
    (f"_dns._udp.db.{BELOW}", SRV, [f"0 100 53 10-244-0-3.db.{BELOW}"]),
    (f"inside.{BELOW}", A, [f"db.{BELOW}", "10.244.0.2", "10.244.0.3"]),
    (f"inside.{BELOW}", CNAME, [f"db.{BELOW}"]),
    (f"outside.{BELOW}", CNAME, ["data.example.org"]),
    (f"outside.{BELOW}", AAAA, ["data.example.org"]),
    (f"outside.{BELOW}", 15, ["data.example.org"]),
    (f"host.{BELOW}", A, ["host.trainyard.internal", "169.254.74.1"]),
    (f"circle.{BELOW}", A, [f"circle.{BELOW}"] * 8),
    ("7.0.96.10.in-addr.arpa", PTR, [f"web.{BELOW}"]),
    ("2.0.244.10.in-addr.arpa", PTR, [f"db-0.db.{BELOW}"]),
    ("3.0.244.10.in-addr.arpa", PTR, [f"10-244-0-3.db.{BELOW}"]),
    ("10-244-9-9.ns.pod.cluster.local", A, ["10.244.9.9"]),
    ("dns-version.cluster.local", TXT, ["\x051.1.0"]),
    ("cluster.local", A, []),
    ("svc.cluster.local", A, []),
    (BELOW, A, []),
    ("host.trainyard.internal", A, ["169.254.74.1"]),
    ("HOST.Trainyard.internal", A, ["169.254.74.1"]),
    ("host.trainyard.internal", AAAA, []),
    ("example.org", AAAA, []),
]
ABSENT = [
    f"nobody.{BELOW}",
    "web.elsewhere.svc.cluster.local",
    "elsewhere.svc.cluster.local",
    f"db-1.db.{BELOW}",
    f"10-96-0-7.web.{BELOW}",
    f"_sql._tcp.web.{BELOW}",
    f"_udp.elsewhere.{BELOW}",
    f"a.outside.{BELOW}",
    "a.b.c.cluster.local",
    "other.trainyard.internal",
    "example.org.default.svc.cluster.local",
    "job-worker-0",
    "9.0.244.10.in-addr.arpa",
    "9.9.96.10.in-addr.arpa",
    "1-2-3-4.ns.pod.cluster.local",
    "ten.ns.pod.cluster.local",
    "10-244-9-9.pod.cluster.local",
]


@pytest.mark.parametrize(("name", "kind", "answers"), EXISTING)
def test_what_there_is(name: str, kind: int, answers: list[str]) -> None:
    assert local_answer(name, kind) == (dns_messages.NO_ERROR, answers, "")


@pytest.mark.parametrize("name", ABSENT)
@pytest.mark.parametrize("kind", [A, AAAA])
def test_what_there_is_not_is_said_at_once(name: str, kind: int) -> None:
    assert local_answer(name, kind) == (dns_messages.NO_SUCH_NAME, [], "")


def test_an_alias_that_leads_to_nothing_says_so() -> None:
    nowhere = f"nobody.{BELOW}"
    assert local_answer(f"dangling.{BELOW}") == (dns_messages.NO_SUCH_NAME, [nowhere], "")


def test_what_an_alias_outside_stands_for_is_asked_elsewhere() -> None:
    outside = "data.example.org"
    assert local_answer(f"outside.{BELOW}") == (dns_messages.NO_ERROR, [outside], outside)
    assert local_answer(f"second.{BELOW}") == (
        dns_messages.NO_ERROR,
        [f"outside.{BELOW}", outside],
        outside,
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("example.org", A), ("notcluster.local", A), ("example.org", 15)]
)
def test_what_the_machines_servers_are_asked(name: str, kind: int) -> None:
    assert (
        dns_local_answers.answer_locally(dns_messages.read_question(query_bytes(name, kind)), ZONE)
        is None
    )


def test_names_change() -> None:
    one = zone(web=WEB, db=DB)
    assert local_answer("2.0.244.10.in-addr.arpa", PTR, one)[1] == [f"db-0.db.{BELOW}"]
    moved = json.dumps(Named((Name("10.244.0.9"),), is_headless=True))
    one.set(SetNames({"ns/db": moved, "ns/web": ""}))
    assert local_answer(f"db.{BELOW}", A, one)[1] == ["10.244.0.9"]
    for gone in (f"web.{BELOW}", "2.0.244.10.in-addr.arpa", f"_http._tcp.db.{BELOW}"):
        assert local_answer(gone, A, one) == (dns_messages.NO_SUCH_NAME, [], "")
    one.set(SetNames({"ns/web": json.dumps(WEB)}, is_all=True))
    assert local_answer(f"web.{BELOW}", A, one)[1] == ["10.96.0.7"]
    assert local_answer(f"db.{BELOW}", A, one)[0] == dns_messages.NO_SUCH_NAME


# -- bytes -----------------------------------------------------------------------------------------


def test_an_answer_byte_by_byte() -> None:
    asked = dns_messages.read_question(query_bytes("a.b", A))
    record = DnsRecord("a.b", A, bytes([1, 2, 3, 4]))
    assert dns_messages.build_answer(asked, DnsAnswer(0, (record,))).hex(" ") == (
        "00 4d 85 80 00 01 00 01 00 00 00 00 01 61 01 62 00 00 01 00 01 "
        "c0 0c 00 01 00 01 00 00 00 05 00 04 01 02 03 04"
    )


def test_who_says_how_much_there_is_room_for_is_answered_so() -> None:
    records = tuple(DnsRecord("a.b", A, struct.pack(">I", n)) for n in range(100))
    for more, room, count in (
        (b"", 512, 30),
        (EXTENDED, 1232, 75),
        (b"", dns_messages.MAX_MESSAGE_BYTES, 100),
    ):
        asked = dns_messages.read_question(query_bytes("a.b", A, more))
        message = dns_messages.build_answer(
            asked, DnsAnswer(0, records), min(room, dns_messages.MAX_MESSAGE_BYTES)
        )
        if room != dns_messages.MAX_MESSAGE_BYTES:
            assert asked.max_bytes == room
        assert len(message) <= room
        found = dns_messages.read_answer(message, A)
        assert found.records == records[:count]
        assert found.is_truncated == (count < 100)
        assert message.endswith(struct.pack(">BHHIH", 0, 41, 4096, 0, 0)) == bool(more)


def test_names_of_an_answer_are_read_as_they_were_written() -> None:
    asked = dns_messages.read_question(query_bytes("a.b", A))
    chain = (
        DnsRecord("a.b", CNAME, b"", "data.example.org"),
        DnsRecord("data.example.org", CNAME, b"", "b"),
        DnsRecord("b", A, bytes(4)),
    )
    message = dns_messages.build_answer(
        asked,
        DnsAnswer(dns_messages.NO_ERROR, chain, (DnsRecord("data.example.org", A, bytes(4)),)),
    )
    assert message.count(b"\x07example") == 1, "each name is written once"
    assert dns_messages.read_answer(message, A).records == chain


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x" * 11,
        query_bytes("example.org")[:-1],
        query_bytes("a")[:12] + b"\xc0\x0c\0\1\0\1",
        b"\0\1\x80\0" + query_bytes("a")[4:],
        query_bytes("a")[:4] + b"\0\2" + query_bytes("a")[6:],
        query_bytes("a")[:12] + b"\x3f" + b"a" * 20,
    ],
)
def test_what_is_no_question_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        dns_messages.read_question(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        query_bytes("a")[:-1],
        query_bytes("a")[:6] + b"\0\1" + query_bytes("a")[8:],
        query_bytes("a")[:6] + b"\0\1" + query_bytes("a")[8:12] + b"\xc0\x0c",
        query_bytes("a")[:6] + b"\0\1" + query_bytes("a")[8:] + b"\xc0\x13",
        query_bytes("a")[:6] + b"\0\1" + query_bytes("a")[8:] + b"\x03a.b\0\0\1\0\1\0\0\0\0\0\0",
    ],
)
def test_a_broken_answer_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        dns_messages.read_answer(message, A)


def test_an_answer_of_noise_is_read_or_refused() -> None:
    whole = dns_messages.build_answer(
        dns_messages.read_question(query_bytes("a.b", A)),
        DnsAnswer(0, (DnsRecord("a.b", CNAME, b"", "c.d"), DnsRecord("c.d", A, bytes(4)))),
    )
    for place in range(len(whole)):
        for value in (0, 1, 63, 64, 0xC0, 0xFF):
            for message in (whole[:place], whole[:place] + bytes([value]) + whole[place + 1 :]):
                try:
                    dns_messages.read_answer(message, A)
                except ValueError:
                    continue
