"""Questions of DNS that are answered without asking anybody.

Names of the cluster are in every pod's /etc/hosts too, which programs read first, and all that only
asks name servers finds them here. What does not exist, and that the pods have no IPv6, is said at
once, so that no program waits for a far name server.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.dns.cluster_zone import DOMAIN, ClusterZone
from trainyard.podruntime.egress.dns.dns_messages import Answer, Question, Record
from trainyard.podruntime.egress.egress_policy import HOST_ADDRESS, HOST_NAME

# Of pods and Services, by name and by address; names of one label are of hosts in the cluster.
_OURS = (DOMAIN, "trainyard.internal", "244.10.in-addr.arpa", "96.10.in-addr.arpa")
_MOST_ALIASES = 8
"""From one ExternalName to the next."""


class LocalAnswer(NamedTuple):
    """What is known here. ``elsewhere``: a name outside, of which the rest is to be asked for."""

    answer: Answer
    elsewhere: str = ""


def answer_locally(asked: Question, zone: ClusterZone) -> LocalAnswer | None:
    """The answer, or its beginning; None: it is the machine's name servers who know."""
    name, kind = asked.name, asked.kind
    aliases: list[Record] = []
    while True:
        found = _look_up(name, kind, zone)
        if found is None:
            if not aliases:
                return None
            return LocalAnswer(
                Answer(dns_messages.NO_ERROR, tuple(aliases)),
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
    return LocalAnswer(Answer(code, (*aliases, *answers), tuple(additional)))


def _look_up(name: str, kind: int, zone: ClusterZone) -> tuple[int, list[Record]] | None:
    """Whether there is a name, and all that it has."""
    if name == HOST_NAME:
        return dns_messages.NO_ERROR, [Record(name, dns_messages.A, socket.inet_aton(HOST_ADDRESS))]
    if any(name == ours or name.endswith(f".{ours}") for ours in _OURS):
        records = zone.find(name)
        return (
            (dns_messages.NO_SUCH_NAME, []) if records is None else (dns_messages.NO_ERROR, records)
        )
    if kind in (dns_messages.A, dns_messages.AAAA) and "." not in name:
        return dns_messages.NO_SUCH_NAME, []
    return (dns_messages.NO_ERROR, []) if kind == dns_messages.AAAA else None
