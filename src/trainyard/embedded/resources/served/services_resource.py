"""Services: each is given an address of its own and, where it asks, ports of this machine."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from trainyard.embedded.api_errors import StatusCause, forbidden
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import (
    META,
    PROXY_VERBS,
    Object,
    Present,
    Served,
    Subresource,
)
from trainyard.kube.resources import SERVICES
from trainyard.schema.object_names import is_dns_label
from trainyard.schema.problems import Problem, error

NODE_PORT_HOST = "127.0.0.1"
"""Where node ports listen: they are the one way into the pods' network from outside."""
ON_NODE_PORTS = ("NodePort", "LoadBalancer")
_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
_NODE_PORTS = (30000, 32768)
"""Kubernetes' own default, below the ports that Linux hands out by itself."""
_TRIES = 200


class _Services(Served):
    def is_name(self, name: str) -> bool:
        return is_dns_label(name)

    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        from trainyard.schema.rules.service_rules import service

        yield from service(obj)
        yield from _rules_here(obj.get("spec") or {}, (old or {}).get("spec") or {})

    def unusable(self, obj: Object) -> Iterable[Problem]:
        return self.rules(obj, None)

    def prepare_create(self, obj: Object, present: Present) -> None:
        spec = obj.setdefault("spec", {})
        spec["type"] = spec.get("type") or "ClusterIP"
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        obj["status"] = {"loadBalancer": {}}
        for port in spec.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            port["targetPort"] = port.get("targetPort") or port["port"]
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")

    def allocate(self, obj: Object, present: Present) -> None:
        self._refuse_taken(obj, present)
        self._assign_address(obj["spec"], present)
        self._assign_node_ports(obj["spec"], present)

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        before, after = old.get("spec") or {}, new.setdefault("spec", {})
        address = before.get("clusterIP")
        if after.get("type") == "ExternalName":
            address = ""
        if address and not after.get("clusterIP"):
            after["clusterIP"] = address
        if address and after["clusterIP"] != address:
            text = f"Invalid value: {after['clusterIP']!r}: may not change once set"
            raise self.refused(new, StatusCause("spec.clusterIPs[0]", text))
        if after.get("type") == before.get("type") != "ClusterIP":
            _keep_node_ports(after, before)
        self._refuse_taken(new, present)
        if not address:
            after.setdefault("type", "ClusterIP")
            self._assign_address(after, present)
        self._assign_node_ports(after, present)

    def _refuse_taken(self, obj: Object, present: Present) -> None:
        """What the object asks for must not be another's."""
        address, ports = obj["spec"].get("clusterIP") or "None", obj["spec"].get("ports") or ()
        if address == "None" and not any(port.get("nodePort") for port in ports):
            return
        others = [each for each in present() if each["metadata"]["uid"] != obj["metadata"]["uid"]]
        if address != "None" and any(e["spec"].get("clusterIP") == address for e in others):
            text = f"Invalid value: {address!r}: provided IP is already allocated"
            raise self.refused(obj, StatusCause("spec.clusterIP", text))
        taken = {port.get("nodePort") for e in others for port in e["spec"].get("ports") or ()}
        own: set[int] = set()
        for index, port in enumerate(ports):
            number = port.get("nodePort")
            if number and (number in taken or number in own):
                text = f"Invalid value: {number}: provided port is already allocated"
                raise self.refused(obj, StatusCause(f"spec.ports[{index}].nodePort", text))
            own.add(number)

    def _assign_address(self, spec: Object, present: Present) -> None:
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = self._free_address(present)
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("internalTrafficPolicy", "Cluster")

    def _free_address(self, present: Present) -> str:
        taken = {other["spec"].get("clusterIP") for other in present()}
        for address in _NETWORK.hosts():
            if str(address) not in taken:
                return str(address)
        raise forbidden(self.name, "", f"no address is free in the service network {_NETWORK}")

    def _assign_node_ports(self, spec: Object, present: Present) -> None:
        """A port of this machine for every port of a NodePort Service that has none yet."""
        if spec.get("type") not in ON_NODE_PORTS:
            return
        lacking = [port for port in spec.get("ports") or () if not port.get("nodePort")]
        if not lacking:
            return
        taken = {
            port.get("nodePort") for other in present() for port in other["spec"].get("ports") or ()
        }
        for port in lacking:
            port["nodePort"] = _free_port(taken)
            if not port["nodePort"]:
                raise forbidden(self.name, "", "no port of this machine is free for it")
            taken.add(port["nodePort"])


def _rules_here(spec: Object, before: Object) -> Iterator[Problem]:
    """What this cluster's networks hold."""
    address = spec.get("clusterIP") or "None"
    if address != "None" and not _is_in_network(address):
        yield error(
            ("spec", "clusterIP"),
            f"'{address[:60]}' is not an address of the service network {_NETWORK}; "
            "leave it out, and one is chosen",
        )
    addresses = spec.get("clusterIPs") or ()
    is_left = addresses == before.get("clusterIPs")  # by who changes clusterIP, as few know both
    for index, other in enumerate(addresses):
        if index or (other != address and not is_left):
            here = ("spec", "clusterIPs", index)
            yield error(here, "there is one address, which spec.clusterIP has as well")
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort") or _NODE_PORTS[0]
        if not _NODE_PORTS[0] <= number < _NODE_PORTS[1]:
            text = f"must be between {_NODE_PORTS[0]} and {_NODE_PORTS[1] - 1}, is {number}"
            yield error(("spec", "ports", index, "nodePort"), text)


def _is_in_network(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text) in _NETWORK
    except ValueError:
        return False


def _keep_node_ports(after: Object, before: Object) -> None:
    """A manifest that is applied again does not say which ports it was given."""
    known = {port.get("port"): port.get("nodePort") for port in before.get("ports") or ()}
    for port in after.get("ports") or ():
        if not port.get("nodePort") and known.get(port.get("port")):
            port["nodePort"] = known[port["port"]]


def _free_port(taken: Collection[int]) -> int:
    """A port that nothing listens on now; 0 when none is found."""
    for _ in range(_TRIES):
        port = random.randrange(*_NODE_PORTS)
        if port in taken:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind((NODE_PORT_HOST, port))
            return port
    return 0


def _ports(service: Object) -> str:
    ports = service.get("spec", {}).get("ports") or ()
    texts = [
        f"{port.get('port')}{':' if 'nodePort' in port else ''}{port.get('nodePort', '')}"
        f"/{port.get('protocol', 'TCP')}"
        for port in ports
    ]
    return ",".join(texts) or "<none>"


def _selector(service: Object) -> str:
    pairs = (service.get("spec", {}).get("selector") or {}).items()
    return ",".join(f"{key}={value}" for key, value in pairs) or "<none>"


SERVED = _Services(
    SERVICES,
    order=40,
    short_names=("svc",),
    categories=("all",),
    status=True,
    printer_columns=(
        NAME,
        Column("Type", at("spec.type", "ClusterIP")),
        Column("Cluster-IP", at("spec.clusterIP")),
        Column("External-IP", lambda _: "<none>"),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector, priority=1),
    ),
    selectable=frozenset({"spec.clusterIP", "spec.type"}),
    messages={
        "Service": META + "2 spec ServiceSpec",
        "ServiceSpec": (
            "1 ports ServicePort[], 2 selector str{}, 3 clusterIP str, 4 type str, "
            "7 sessionAffinity str, 10 externalName str, 13 publishNotReadyAddresses bool"
        ),
        "ServicePort": (
            "1 name str, 2 protocol str, 3 port int, 4 targetPort IntOrString, 5 nodePort int"
        ),
    },
    definition="Service",
    unset={"spec": {}},
    subresources={"proxy": Subresource("ServiceProxyOptions", PROXY_VERBS)},
    returns_deleted=True,
)
