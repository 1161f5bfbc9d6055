"""What stands behind Services: the pods that each selects, as Kubernetes chooses them. Pure.

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
"""The label of Endpoints that say what a selector finds."""


class Endpoint(NamedTuple):
    """One pod of a Service."""

    pod: Mapping[str, Any]
    address: str
    is_ready: bool
    """Connections are sent to it."""
    is_serving: bool
    """It says that it is ready, whatever becomes of it."""
    is_terminating: bool


def selected_endpoints(
    service: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]
) -> list[Endpoint]:
    """Of those pods that a Service selects, all that have an address and have not ended."""
    return [_endpoint(service, pod) for pod in pods if _is_present(pod) and selects(service, pod)]


def routable_endpoints(found: Iterable[Endpoint]) -> list[Endpoint]:
    """Those that connections go to: the ready ones; where there are none, what still serves while
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
    told = (
        ()
        if not endpoints or is_controller_written(endpoints)
        else manual_endpoints(endpoints, port)
    )
    return [(present[address], number) for address, number in told if address in present]


def manual_endpoints(
    endpoints: Mapping[str, Any], port: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Where somebody's own Endpoints say that a port of a Service without a selector leads."""
    for subset in endpoints.get("subsets") or ():
        for each in subset.get("ports") or ():
            if port_key(each) == port_key(port):
                for address in subset.get("addresses") or ():
                    yield address["ip"], each["port"]


def port_key(port: Mapping[str, Any]) -> tuple[str, str]:
    """What a port of a Service and one of an Endpoints have in common."""
    return port.get("name") or "", port.get("protocol") or "TCP"


def selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """A Service without a selector selects nothing."""
    if pod["metadata"]["namespace"] != service["metadata"]["namespace"]:
        return False
    selector = service["spec"].get("selector") or {}
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(k) == v for k, v in selector.items())


def is_controller_written(endpoints: Mapping[str, Any]) -> bool:
    """Whether an Endpoints is no user's own."""
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
    """Services and pods as events tell of them. What a change touches, and what a Service selects,
    is found by labels, so that it costs the same however many others there are."""

    def __init__(self) -> None:
        self.services: dict[Key, Object] = {}
        self._pods: dict[Key, Object] = {}
        """Those with an address that have not ended."""
        self._services_by_label: dict[_Label, dict[Key, Object]] = {}
        self._pods_by_label: dict[_Label, dict[Key, Object]] = {}

    def observe(self, event: Event) -> Iterator[Key]:
        """Take up a change of a Service or pod; the Services that it may touch."""
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
        """As the function, of all pods, by their names."""
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
    """Let an object, or nothing, take the place of what is known under its key."""
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
    """All of a pod that endpoints show."""
    if pod is None:
        return None
    metadata, status = pod["metadata"], pod["status"]
    conditions = status.get("conditions") or ()
    ready = [c["status"] for c in conditions if c["type"] == "Ready"]
    gone = "deletionTimestamp" in metadata
    return metadata["uid"], metadata.get("labels"), status["podIP"], ready, gone
