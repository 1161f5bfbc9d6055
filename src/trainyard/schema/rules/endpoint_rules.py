"""Endpoints and EndpointSlices, which controllers write, and whoever has a Service lead outside."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import (
    MOST_PORT,
    Object,
    address,
    bounds,
    choice,
    label_name,
    object_name,
    qualified,
    required,
    unique,
)

PROTOCOLS = ("TCP", "UDP", "SCTP")
_MOST_ADDRESSES, _MOST_ENDPOINTS, _MOST_PORTS = 100, 1000, 100
_TYPES = ("IPv4", "IPv6", "FQDN")


def endpoints(obj: Object) -> Iterator[Problem]:
    """Problems of an Endpoints."""
    for index, subset in enumerate(obj.get("subsets") or ()):
        path = ("subsets", index)
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield error(path, "must have 'addresses' or 'notReadyAddresses'")
        for field in ("addresses", "notReadyAddresses"):
            for place, each in enumerate(subset.get(field) or ()):
                here = (*path, field, place)
                yield from _reachable(each["ip"], (*here, "ip"))
                if each.get("hostname"):
                    yield from label_name(each["hostname"], (*here, "hostname"), "host name")
        yield from _ports(subset.get("ports") or (), (*path, "ports"))


def endpoint_slice(obj: Object) -> Iterator[Problem]:
    """Problems of an EndpointSlice."""
    kind = obj["addressType"]
    found, ports = obj.get("endpoints") or (), obj.get("ports") or ()
    for field, listed, most in (
        ("endpoints", found, _MOST_ENDPOINTS),
        ("ports", ports, _MOST_PORTS),
    ):
        if len(listed) > most:
            yield error((field,), f"must have at most {most} items, has {len(listed)}")
    for index, each in enumerate(found):
        yield from _endpoint(each, kind, ("endpoints", index))
    names = [each.get("name") or "" for each in ports]
    yield from unique([(name,) for name in names], ("ports",), "name", "port named")
    for index, each in enumerate(ports):
        yield from _port(each, ("ports", index))


def _endpoint(each: Object, kind: str, path: Path) -> Iterator[Problem]:
    yield from required(each, path, "addresses")
    if len(each["addresses"]) > _MOST_ADDRESSES:
        yield error((*path, "addresses"), f"must have at most {_MOST_ADDRESSES} items")
    for index, value in enumerate(each["addresses"]):
        here = (*path, "addresses", index)
        if kind == "FQDN":
            yield from object_name(value, here, "host name")
        else:
            wrong = list(_reachable(value, here))
            yield from wrong
            if wrong or kind not in _TYPES:
                continue
            if f"IPv{ipaddress.ip_address(value).version}" != kind:
                yield error(here, f"{value} is not an address of {kind}")
    if each.get("hostname"):
        yield from label_name(each["hostname"], (*path, "hostname"), "host name")


def _ports(ports: Sequence[Object], path: Path) -> Iterator[Problem]:
    for index, each in enumerate(ports):
        yield from _port(each, (*path, index))
        if len(ports) > 1 and not each.get("name"):
            yield error((*path, index, "name"), REQUIRED)


def _port(each: Object, path: Path) -> Iterator[Problem]:
    yield from bounds(each, path, "port", 1, MOST_PORT)
    yield from choice(each, path, "protocol", PROTOCOLS)
    if each.get("name"):
        yield from label_name(each["name"], (*path, "name"), "name of a port")
    if each.get("appProtocol"):
        yield from qualified(each["appProtocol"], (*path, "appProtocol"))


def _reachable(value: str, path: Path) -> Iterator[Problem]:
    wrong = list(address(value, path))
    yield from wrong
    if not wrong:
        found = ipaddress.ip_address(value)
        if found.is_loopback or found.is_unspecified or found.is_multicast or found.is_link_local:
            yield error(path, f"{value} is an address that no other host has")
