"""The endpoints of Services: the pods that each selects, by Kubernetes' rules. Pure.

https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from trainyard.embedded.storage.journal import Event, Object

Key = tuple[str, str]
"""Namespace and name."""
_Label = tuple[str, str, str]
"""Namespace, key and value."""
_ENDED = ("Succeeded", "Failed")


CONTROLLER_LABEL = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
"""The label of Endpoints that the endpoint controller writes."""


class Endpoint(NamedTuple):
    """One pod of a Service."""

    pod: Mapping[str, Any]
    address: str
    is_ready: bool
    """Connections are sent to it."""
    is_serving: bool
    """Its condition Ready is true, even if it is terminating."""
    is_terminating: bool


def selected_endpoints(
    service: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]
) -> list[Endpoint]:
    """The pods that a Service selects, with an address and not ended."""
    return [_endpoint(service, pod) for pod in pods if _is_present(pod) and selects(service, pod)]


def routable_endpoints(found: Iterable[Endpoint]) -> list[Endpoint]:
    """The endpoints that get connections: the ready ones; if there are none, those that serve while
    it is being stopped."""
    found = list(found)
    ready = [each for each in found if each.is_ready]
    return ready or [each for each in found if each.is_serving and each.is_terminating]


def route_targets(
    service: Mapping[str, Any],
    port: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    endpoints: Mapping[str, Any],
) -> list[tuple[Mapping[str, Any], int]]:
    """The pods, of those, that connections to a port of the Service go to, and their ports.

    `endpoints` is the Endpoints of its name, if there is one, which leads a Service without a
    selector.
    """
    if service["spec"].get("selector"):
        found = [
            (e.pod, target_port(e.pod, port))
            for e in routable_endpoints(selected_endpoints(service, pods))
        ]
        return [(pod, number) for pod, number in found if number]
    present = {pod["status"]["podIP"]: pod for pod in pods if _is_present(pod)}
    manual = (
        ()
        if not endpoints or is_controller_written(endpoints)
        else manual_endpoints(endpoints, port)
    )
    return [(present[address], number) for address, number in manual if address in present]


def manual_endpoints(
    endpoints: Mapping[str, Any], port: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Addresses and ports in user-written Endpoints for a port of a Service without a selector."""
    for subset in endpoints.get("subsets") or ():
        for each in subset.get("ports") or ():
            if port_key(each) == port_key(port):
                for address in subset.get("addresses") or ():
                    yield address["ip"], each["port"]


def port_key(port: Mapping[str, Any]) -> tuple[str, str]:
    """By which a port of a Service and a port of an Endpoints belong together."""
    return port.get("name") or "", port.get("protocol") or "TCP"


def selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """A Service without a selector selects nothing."""
    if pod["metadata"]["namespace"] != service["metadata"]["namespace"]:
        return False
    selector = service["spec"].get("selector") or {}
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(k) == v for k, v in selector.items())


def is_controller_written(endpoints: Mapping[str, Any]) -> bool:
    """Whether the endpoint controller, not a user, wrote an Endpoints."""
    return bool((endpoints["metadata"].get("labels") or {}).items() >= CONTROLLER_LABEL.items())


def target_port(pod: Mapping[str, Any], port: Mapping[str, Any]) -> int:
    """The pod's port behind a port of a Service; 0 for a name that the pod has not."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int) or target.isdigit():
        return int(target)
    protocol = port.get("protocol") or "TCP"
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("name") == target and (each.get("protocol") or "TCP") == protocol:
                return int(each["containerPort"])
    return 0


def host_name_below(service: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """The pod's own name below that of the Service; "" where it has none."""
    spec = pod["spec"]
    is_below = spec.get("subdomain") == service["metadata"]["name"]
    return str(spec.get("hostname") or "") if is_below else ""


def _endpoint(service: Mapping[str, Any], pod: Mapping[str, Any]) -> Endpoint:
    conditions = pod["status"].get("conditions") or ()
    serving = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    terminating = "deletionTimestamp" in pod["metadata"]
    is_published = bool(service["spec"].get("publishNotReadyAddresses"))
    ready = is_published or (serving and not terminating)
    return Endpoint(pod, pod["status"]["podIP"], ready, serving, terminating)


def _is_present(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status") or {}
    return bool(status.get("podIP")) and status.get("phase") not in _ENDED


class EndpointIndex:
    """Services and pods, kept current from events and indexed by label.

    So the cost of a change does not grow with the number of other Services and pods.
    """

    def __init__(self) -> None:
        self.services: dict[Key, Object] = {}
        self._pods: dict[Key, Object] = {}
        """Those with an address that have not ended."""
        self._services_by_label: dict[_Label, dict[Key, Object]] = {}
        self._pods_by_label: dict[_Label, dict[Key, Object]] = {}

    def observe(self, event: Event) -> Iterator[Key]:
        """Take in a change of a Service or pod; returns the Services that it may affect."""
        metadata = event.object["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if event.resource == "services":
            new = event.object if event.type != "DELETED" else None
            _replace_indexed(self.services, self._services_by_label, key, new, _selector_label)
            return iter((key,))
        old = self._pods.get(key)
        is_there = event.type != "DELETED" and _is_present(event.object)
        new = event.object if is_there else None
        _replace_indexed(self._pods, self._pods_by_label, key, new, _pod_labels)
        return iter(()) if _visible_state(old) == _visible_state(new) else self._touched(old, new)

    def endpoints_of(self, service: Object) -> list[Endpoint]:
        """The endpoints of a Service among all pods, in the order of their names."""
        pods = [pod for label in _selector_label(service) for pod in self._by_name(label)]
        return selected_endpoints(service, pods)

    def _by_name(self, label: _Label) -> list[Object]:
        return [pod for _, pod in sorted(self._pods_by_label.get(label, {}).items())]

    def _touched(self, *versions: Object | None) -> Iterator[Key]:
        pods = [pod for pod in versions if pod is not None]
        for label in {label for pod in pods for label in _pod_labels(pod)}:
            for key, service in self._services_by_label.get(label, {}).items():
                if any(selects(service, pod) for pod in pods):
                    yield key


def _replace_indexed(
    objects: dict[Key, Object],
    by_label: dict[_Label, dict[Key, Object]],
    key: Key,
    new: Object | None,
    labels_of: Callable[[Object], Iterable[_Label]],
) -> None:
    """Replace the object under a key, or remove it, in the dictionary and its label index."""
    if (old := objects.pop(key, None)) is not None:
        for label in labels_of(old):
            del by_label[label][key]
            if not by_label[label]:
                del by_label[label]
    if new is not None:
        objects[key] = new
        for label in labels_of(new):
            by_label.setdefault(label, {})[key] = new


def _pod_labels(pod: Object) -> list[_Label]:
    labels = pod["metadata"].get("labels") or {}
    return [(pod["metadata"]["namespace"], *pair) for pair in labels.items()]


def _selector_label(service: Object) -> list[_Label]:
    """One of the labels that it selects by. Of a job's, the first is the job's own."""
    selector = service["spec"].get("selector") or {}
    return [(service["metadata"]["namespace"], *min(selector.items()))] if selector else []


def _visible_state(pod: Object | None) -> object:
    """Everything about a pod that endpoints depend on."""
    if pod is None:
        return None
    metadata, status = pod["metadata"], pod["status"]
    conditions = status.get("conditions") or ()
    ready = [c["status"] for c in conditions if c["type"] == "Ready"]
    gone = "deletionTimestamp" in metadata
    return metadata["uid"], metadata.get("labels"), status["podIP"], ready, gone
