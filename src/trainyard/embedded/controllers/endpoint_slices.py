"""Endpoints and EndpointSlices in the shapes that Kubernetes' controllers give them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.embedded.service_endpoints import Endpoint, host_name_below, target_port
from trainyard.schema.dataclass import dataclass
from trainyard.schema.rules.service_rules import HEADLESS

MAX_ENDPOINTS = 100
"""In one slice, as kube-controller-manager's --max-endpoints-per-slice."""
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SLICES, MIRROR = (
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
)
_HEADLESS_LABEL = "service.kubernetes.io/headless"

Object = dict[str, Any]
Ports = tuple[tuple[tuple[str, Any], ...], ...]


@dataclass(slots=True)
class EndpointGroup:
    """Endpoints whose ports have the same numbers."""

    ports: Ports
    endpoints: list[Object]


# -- of pods ------------------------------------------------------------------------------------


def endpoint_subsets(service: Object, found: Iterable[Endpoint]) -> list[Object]:
    """Of an Endpoints: ports that lead to the same pods are together. What is being stopped is
    not in it, unless all are published."""
    publishes = bool(service["spec"].get("publishNotReadyAddresses"))
    there = [each for each in found if publishes or not each.is_terminating]
    of_port: dict[Ports, set[str]] = {}
    for ports, ends in _by_ports(service, there).items():
        single: list[Ports] = [(port,) for port in ports]
        for one in single or ([] if service["spec"].get("ports") else [()]):
            of_port.setdefault(one, set()).update(each.address for each in ends)
    together: dict[tuple[str, ...], Ports] = {}
    for one, known in of_port.items():
        addresses = tuple(sorted(known))
        together[addresses] = together.get(addresses, ()) + one
    by_address = {each.address: each for each in there}
    return [
        _subset(service, [by_address[address] for address in addresses], ports)
        for addresses, ports in together.items()
    ]


def _subset(service: Object, ends: list[Endpoint], ports: Ports) -> Object:
    fields = {
        "addresses": [_address(service, each) for each in ends if each.is_ready],
        "notReadyAddresses": [_address(service, each) for each in ends if not each.is_ready],
        "ports": [{key: value for key, value in port if value != ""} for port in ports],
    }
    return {field: listed for field, listed in fields.items() if listed}


def _address(service: Object, each: Endpoint) -> Object:
    return {"ip": each.address, **_which(service, each.pod)}


def _which(service: Object, pod: Mapping[str, Any]) -> Object:
    """What is said of a pod in both."""
    metadata = pod["metadata"]
    found: Object = {
        "hostname": host_name_below(service, pod),
        "nodeName": pod["spec"].get("nodeName"),
        "targetRef": {
            "kind": "Pod",
            **{key: metadata[key] for key in ("namespace", "name", "uid")},
        },
    }
    return {field: value for field, value in found.items() if value}


def endpoint_groups(service: Object, found: Iterable[Endpoint]) -> list[EndpointGroup]:
    """Of the slices of a Service."""
    return [
        EndpointGroup(ports, [_endpoint(service, each) for each in ends])
        for ports, ends in _by_ports(service, found).items()
    ]


def _endpoint(service: Object, each: Endpoint) -> Object:
    conditions = {
        "ready": each.is_ready,
        "serving": each.is_serving,
        "terminating": each.is_terminating,
    }
    which = _which(service, each.pod)
    return {"addresses": [each.address], "conditions": conditions, **which}


def _by_ports(service: Object, found: Iterable[Endpoint]) -> dict[Ports, list[Endpoint]]:
    """By the numbers that the ports' names stand for; a name that a pod has not is left out."""
    result: dict[Ports, list[Endpoint]] = {}
    for each in found:
        numbers = ((p, target_port(each.pod, p)) for p in service["spec"].get("ports") or ())
        ports = tuple(_port(port, number) for port, number in numbers if number)
        result.setdefault(ports, []).append(each)
    return result


def _port(port: Object, number: int) -> tuple[tuple[str, Any], ...]:
    shown = {"name": port.get("name") or "", "port": number}
    shown["protocol"] = port.get("protocol") or "TCP"
    if port.get("appProtocol"):
        shown["appProtocol"] = port["appProtocol"]
    return tuple(shown.items())


# -- of an Endpoints that somebody wrote ---------------------------------------------------------


def mirrored_groups(endpoints: Object) -> list[EndpointGroup]:
    """What the slices of somebody's own Endpoints hold."""
    return [
        EndpointGroup(
            tuple(_port(port, port["port"]) for port in subset.get("ports") or ()),
            [
                _mirrored_endpoint(address, ready=field == "addresses")
                for field in ("addresses", "notReadyAddresses")
                for address in subset.get(field) or ()
            ],
        )
        for subset in endpoints.get("subsets") or ()
    ]


def _mirrored_endpoint(address: Object, *, ready: bool) -> Object:
    fields = ("hostname", "nodeName", "targetRef")
    kept: Object = {field: address[field] for field in fields if field in address}
    return {"addresses": [address["ip"]], "conditions": {"ready": ready}, **kept}


# -- whole objects -------------------------------------------------------------------------------


def service_labels(service: Object) -> dict[str, str]:
    """A Service's labels, and whether it is headless."""
    labels = dict(service["metadata"].get("labels") or {})
    labels.pop(_HEADLESS_LABEL, None)
    if service["spec"].get("clusterIP") == HEADLESS:
        labels[_HEADLESS_LABEL] = ""
    return labels


def slice_metadata(owner: Object, service: Object, manager: str) -> Object:
    """Of a new slice; `owner` is the Service, or the Endpoints that is mirrored."""
    metadata = owner["metadata"]
    labels = service_labels(service) if manager == SLICES else dict(metadata.get("labels") or {})
    reference = {
        "apiVersion": "v1",
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "generateName": f"{metadata['name']}-",
        "namespace": metadata["namespace"],
        "labels": {**labels, SERVICE_NAME: metadata["name"], MANAGED_BY: manager},
        "ownerReferences": [reference],
    }


def address_type(address: str) -> str:
    """The addressType of a slice that has this address."""
    return "IPv6" if ":" in address else "IPv4"


def plan_slices(
    wanted: Sequence[EndpointGroup], present: Mapping[str, Object]
) -> tuple[dict[str, Object], list[Object]]:
    """Which slices there should be: those of `present` by name, each with as little changed as can
    be, and new ones. One that is not named is to go.

    A slice is `addressType`, `ports` and `endpoints`. Without any endpoint there is one slice.
    """
    kept: dict[str, Object] = {}
    new: list[Object] = []
    free = dict(present)
    for kind, group in _by_family(wanted):
        ports = [dict(port) for port in group.ports]
        same_ports = [
            n for n, old in free.items() if (old["addressType"], old["ports"]) == (kind, ports)
        ]
        missing = {_identity(each): each for each in group.endpoints}
        own = {}
        for name in same_ports:
            known = [_identity(each) for each in free.pop(name)["endpoints"]]
            own[name] = [missing.pop(each) for each in known if each in missing]
        rest = list(missing.values())
        for name, listed in own.items():
            room = MAX_ENDPOINTS - len(listed)
            listed += rest[:room]
            rest = rest[room:]
            if listed:
                kept[name] = _slice(kind, ports, listed)
        starts = range(0, len(rest), MAX_ENDPOINTS)
        new += [_slice(kind, ports, rest[start : start + MAX_ENDPOINTS]) for start in starts]
    if not kept and not new:
        new.append(_slice("IPv4", [], []))
    # A slice takes the place of one that would go, as far as its family, which stays, is the same.
    for each in tuple(new):
        unused = (n for n, old in present.items() if n not in kept and _fits(old, each))
        if name := next(unused, ""):
            kept[name] = each
            new.remove(each)
    return kept, new


def _fits(old: Object, new: Object) -> bool:
    return bool(old["addressType"] == new["addressType"])


def _by_family(wanted: Iterable[EndpointGroup]) -> list[tuple[str, EndpointGroup]]:
    found: dict[tuple[str, Ports], EndpointGroup] = {}
    for group in wanted:
        for each in group.endpoints:
            key = (address_type(each["addresses"][0]), group.ports)
            found.setdefault(key, EndpointGroup(group.ports, [])).endpoints.append(each)
    return [(kind, group) for (kind, _), group in found.items()]


def _slice(kind: str, ports: list[Object], endpoints: list[Object]) -> Object:
    return {"addressType": kind, "ports": ports, "endpoints": endpoints}


def _identity(endpoint: Object) -> tuple[str, str]:
    return endpoint["addresses"][0], (endpoint.get("targetRef") or {}).get("uid", "")
