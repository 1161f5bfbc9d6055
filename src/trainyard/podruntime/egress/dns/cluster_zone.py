"""The cluster's DNS zone: Services and the pods behind them, as cluster DNS names them.

https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Iterator

from trainyard.podruntime.egress.dns import dns_messages
from trainyard.podruntime.egress.dns.dns_messages import DnsRecord
from trainyard.podruntime.egress.egress_policy import is_pod
from trainyard.podruntime.protocol import Name, Named, SetNames

DOMAIN = "cluster.local"
_SERVICES, _PODS = f".svc.{DOMAIN}", f".pod.{DOMAIN}"
_SCHEMA = f"dns-version.{DOMAIN}"
_SCHEMA_VERSION = b"\x051.1.0"
_ANY_WEIGHT = 100
"""The sum of an SRV answer's weights."""

Key = tuple[str, str]


class ClusterZone:
    """Services by name. Each is parsed only when somebody asks for it."""

    def __init__(self) -> None:
        self._unparsed: dict[Key, str] = {}
        self._parsed: dict[Key, Named] = {}
        self._by_address: dict[str, dict[Key, None]] = {}

    def set(self, wanted: SetNames) -> None:
        """Apply a change."""
        if wanted.is_all:
            for key in tuple(self._unparsed):
                self._drop(key)
        for where, text in wanted.changed.items():
            namespace, _, service = where.partition("/")
            self._drop((namespace, service))
            if text:
                self._unparsed[namespace, service] = text

    def find(self, name: str) -> list[DnsRecord] | None:
        """All records of a name below ``cluster.local``, or of a reversed address; None: no such
        name.

        For an alias that is the CNAME record alone.
        """
        if address := dns_messages.reversed_address(name):
            return [
                DnsRecord(name, dns_messages.PTR, b"", each) for each in self._names_of(address)
            ] or None
        if name.endswith(_SERVICES):
            return self._service_records(name)
        if name.endswith(_PODS):
            return _pod_records(name)
        if name == _SCHEMA:
            return [DnsRecord(name, dns_messages.TXT, _SCHEMA_VERSION)]
        return [] if _SERVICES.endswith(f".{name}") or _PODS.endswith(f".{name}") else None

    def _service_records(self, name: str) -> list[DnsRecord] | None:
        *below, service, namespace = ["", *name.removesuffix(_SERVICES).split(".")]
        named = self._service((namespace, service))
        if not service:
            return [] if any(known == namespace for known, _ in self._unparsed) else None
        if named is None:
            return None
        below = below[1:]
        if named.alias:
            return [DnsRecord(name, dns_messages.CNAME, b"", named.alias)] if not below else None
        if not below:
            return [_address(name, each.address) for each in _unique_ipv4(named.names)]
        if len(below) == 2 and named.names and (label := ".".join(below)) in named.ports:
            full = f"{service}.{namespace}{_SERVICES}"
            return list(_ports(name, full, named, named.ports.index(label)))
        if len(below) == 1 and named.is_headless:
            found = [
                each for each in named.names if below[0] in (each.hostname, _dashed_address(each))
            ]
            return [_address(name, each.address) for each in _unique_ipv4(found)] or None
        is_before_port = len(below) == 1 and any(p.endswith(f".{below[0]}") for p in named.ports)
        return [] if is_before_port else None

    def _service(self, key: Key) -> Named | None:
        if key not in self._parsed and key in self._unparsed:
            names, ports, is_headless, alias = json.loads(self._unparsed[key])
            made = tuple(Name(address, hostname, tuple(own)) for address, hostname, own in names)
            self._parsed[key] = Named(made, tuple(ports), is_headless, alias.rstrip(".").lower())
            for each in made if not alias else ():
                self._by_address.setdefault(each.address, {})[key] = None
        return self._parsed.get(key)

    def _names_of(self, address: str) -> Iterator[str]:
        for key in self._unparsed.keys() - self._parsed.keys():
            self._service(key)
        for namespace, service in self._by_address.get(address, {}):
            named = self._parsed[namespace, service]
            full = f"{service}.{namespace}{_SERVICES}"
            for each in _unique_ipv4(named.names):
                if each.address == address:
                    yield f"{_label(each)}.{full}" if named.is_headless else full

    def _drop(self, key: Key) -> None:
        self._unparsed.pop(key, None)
        named = self._parsed.pop(key, None)
        for each in named.names if named is not None else ():
            known = self._by_address.get(each.address, {})
            known.pop(key, None)
            if not known:
                self._by_address.pop(each.address, None)


def _ports(name: str, full: str, named: Named, place: int) -> Iterator[DnsRecord]:
    """The SRV records of a port, and the addresses of their targets."""
    found = [each for each in _unique_ipv4(named.names) if each.ports[place]]
    weight = max(1, _ANY_WEIGHT // max(1, len(found)))
    targets = {each: f"{_label(each)}.{full}" if named.is_headless else full for each in found}
    for each, target in targets.items():
        data = struct.pack(">HHH", 0, weight, each.ports[place])
        yield DnsRecord(name, dns_messages.SRV, data, target)
    for each, target in targets.items():
        yield _address(target, each.address)


def _pod_records(name: str) -> list[DnsRecord] | None:
    """Records of a pod's name: every address in the pods' network has one."""
    dashed, _, namespace = name.removesuffix(_PODS).partition(".")
    if not namespace or "." in namespace:
        return None
    try:
        address = socket.inet_pton(socket.AF_INET, dashed.replace("-", "."))
    except OSError:
        return None
    return [DnsRecord(name, dns_messages.A, address)] if is_pod(address) else None


def _address(name: str, address: str) -> DnsRecord:
    return DnsRecord(name, dns_messages.A, socket.inet_aton(address))


def _label(each: Name) -> str:
    return each.hostname or _dashed_address(each)


def _dashed_address(each: Name) -> str:
    return each.address.replace(".", "-")


def _unique_ipv4(names: Iterable[Name]) -> list[Name]:
    """Those with an IPv4 address, each address once."""
    return list({each.address: each for each in names if ":" not in each.address}.values())
