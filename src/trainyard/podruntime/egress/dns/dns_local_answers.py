"""DNS queries that are answered without asking a name server.

Names of the cluster are in every pod's /etc/hosts too, but programs that only ask name servers find
them here. For names that do not exist, and for IPv6, which pods lack, the answer comes at once, so
that no program waits for a distant server.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.dns.cluster_zone import DOMAIN, ClusterZone
from trainyard.podruntime.egress.dns.dns_messages import DnsAnswer, DnsQuestion, DnsRecord
from trainyard.podruntime.egress.egress_policy import HOST_ADDRESS, HOST_NAME

# Names and addresses of pods and Services. A name of one label is a host in the cluster.
_OURS = (DOMAIN, "trainyard.internal", "244.10.in-addr.arpa", "96.10.in-addr.arpa")
_MOST_ALIASES = 8
"""Of a chain of ExternalNames."""


class LocalAnswer(NamedTuple):
    """What is known here. ``elsewhere``: a name outside, to be looked up for the rest."""

    answer: DnsAnswer
    elsewhere: str = ""


def answer_locally(asked: DnsQuestion, zone: ClusterZone) -> LocalAnswer | None:
    """The answer, or its beginning; None if only the machine's name servers know."""
    name, kind = asked.name, asked.kind
    aliases: list[DnsRecord] = []
    while True:
        found = _look_up(name, kind, zone)
        if found is None:
            if not aliases:
                return None
            return LocalAnswer(
                DnsAnswer(dns_messages.NO_ERROR, tuple(aliases)),
                name if kind == dns_messages.A else "",
            )
        code, records = found
        alias = next((each for each in records if each.kind == dns_messages.CNAME), None)
        if alias is None or kind == dns_messages.CNAME or len(aliases) == _MOST_ALIASES:
            break
        aliases.append(alias)
        name = alias.target
    answers = [each for each in records if each.name == name and each.kind == kind]
    additional = [each for each in records if each.name != name] if answers else []
    return LocalAnswer(DnsAnswer(code, (*aliases, *answers), tuple(additional)))


def _look_up(name: str, kind: int, zone: ClusterZone) -> tuple[int, list[DnsRecord]] | None:
    """The response code and all records of a name; None if it is not ours."""
    if name == HOST_NAME:
        return dns_messages.NO_ERROR, [
            DnsRecord(name, dns_messages.A, socket.inet_aton(HOST_ADDRESS))
        ]
    if any(name == ours or name.endswith(f".{ours}") for ours in _OURS):
        records = zone.find(name)
        return (
            (dns_messages.NO_SUCH_NAME, []) if records is None else (dns_messages.NO_ERROR, records)
        )
    if kind in (dns_messages.A, dns_messages.AAAA) and "." not in name:
        return dns_messages.NO_SUCH_NAME, []
    return (dns_messages.NO_ERROR, []) if kind == dns_messages.AAAA else None
