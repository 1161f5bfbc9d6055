"""Services."""

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
    labels,
    object_name,
    port,
    qualified,
    shown,
    unique,
)

HEADLESS = "None"
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_OUTSIDE = ("NodePort", "LoadBalancer")
_AFFINITY_SECONDS = 86400
_POLICIES = (
    ("sessionAffinity", ("None", "ClientIP")),
    ("externalTrafficPolicy", ("Cluster", "Local")),
    ("internalTrafficPolicy", ("Cluster", "Local")),
    ("ipFamilyPolicy", ("SingleStack", "PreferDualStack", "RequireDualStack")),
)


def service(obj: Object) -> Iterator[Problem]:
    """Problems of a Service, wherever it is served."""
    spec, path = obj.get("spec") or {}, ("spec",)
    kind, cluster_ip = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    yield from choice(spec, path, "type", _TYPES)
    for field, allowed in _POLICIES:
        yield from choice(spec, path, field, allowed)
    yield from labels(spec.get("selector") or {}, (*path, "selector"))
    yield from _ports(spec.get("ports") or (), kind, (*path, "ports"))
    if kind == "ExternalName":
        yield from _external_name(spec, path)
    elif not spec.get("ports") and cluster_ip != HEADLESS:
        yield error((*path, "ports"), REQUIRED)
    if kind in _OUTSIDE and cluster_ip == HEADLESS:
        yield error((*path, "clusterIP"), f"must not be 'None' for a Service of type {kind}")
    if cluster_ip not in ("", HEADLESS):
        yield from address(cluster_ip, (*path, "clusterIP"))
    if kind not in _OUTSIDE and spec.get("externalTrafficPolicy"):
        text = f"must not be set for a Service of type {kind}"
        yield error((*path, "externalTrafficPolicy"), text)
    for index, each in enumerate(spec.get("externalIPs") or ()):
        yield from _outer_address(each, (*path, "externalIPs", index))
    for index, each in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from _network(each, (*path, "loadBalancerSourceRanges", index))
    if spec.get("sessionAffinity") == "ClientIP":
        config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        here = (*path, "sessionAffinityConfig", "clientIP")
        yield from bounds(config, here, "timeoutSeconds", 1, _AFFINITY_SECONDS)


def _external_name(spec: Object, path: Path) -> Iterator[Problem]:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield error((*path, "externalName"), REQUIRED)
    else:
        yield from object_name(name, (*path, "externalName"), "host name")
    if spec.get("clusterIP"):
        yield error((*path, "clusterIP"), "must not be set for a Service of type ExternalName")


def _ports(ports: Sequence[Object], kind: str, path: Path) -> Iterator[Problem]:
    several = len(ports) > 1
    protocols = [each.get("protocol") or "TCP" for each in ports]
    pairs = [(f"{each['port']}/{p}") for each, p in zip(ports, protocols, strict=True)]
    yield from unique(pairs, path, "port", "port")
    yield from unique((each.get("name") for each in ports), path, "name", "port named")
    outside = [
        each.get("nodePort") and (each["nodePort"], p)
        for each, p in zip(ports, protocols, strict=True)
    ]
    yield from unique(outside, path, "nodePort", "node port")
    for index, each in enumerate(ports):
        here = (*path, index)
        yield from bounds(each, here, "port", 1, MOST_PORT)
        if each.get("targetPort"):
            yield from port(each["targetPort"], (*here, "targetPort"))
        if each.get("name"):
            yield from label_name(each["name"], (*here, "name"), "name of a port")
        elif several:
            yield error((*here, "name"), REQUIRED)
        if each.get("nodePort") and kind not in _OUTSIDE:
            yield error((*here, "nodePort"), f"must not be set for a Service of type {kind}")
        if each.get("appProtocol"):
            yield from qualified(each["appProtocol"], (*here, "appProtocol"))


def _outer_address(value: str, path: Path) -> Iterator[Problem]:
    wrong = list(address(value, path))
    yield from wrong
    if not wrong:
        found = ipaddress.ip_address(value)
        if found.is_loopback or found.is_unspecified or found.is_multicast or found.is_link_local:
            yield error(path, f"{value} is an address that nobody outside can reach")


def _network(value: str, path: Path) -> Iterator[Problem]:
    try:
        ipaddress.ip_network(value.strip(), strict=False)
    except ValueError:
        yield error(path, f"{shown(value)} is not a network such as 10.0.0.0/8")
