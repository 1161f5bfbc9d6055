"""Which connections the relay forwards: Services with a cluster address, and the pods behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trainyard.shim.protocol import Forward

Pod = TypeVar("Pod", bound=Mapping[str, Any])


def forwards(
    services: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], *, plain: bool
) -> list[Forward]:
    """(address, port, endpoints) for every TCP port of a Service that has an own address.

    In plain mode a Service's address does not exist: peers are given the address of its pod. A
    forward is then only needed where the port differs from the target's.
    """
    pods = [pod for pod in pods if _has_address(pod)]
    result: list[Forward] = []
    for service in services:
        spec = service["spec"]
        address = spec.get("clusterIP", "")
        if address in ("", "None") or not spec.get("selector"):
            continue
        ready = behind(service, pods)
        for port in spec.get("ports", ()):
            if port.get("protocol", "TCP") != "TCP":
                continue
            number, target = port["port"], port.get("targetPort") or port["port"]
            ends = tuple((pod["status"]["podIP"], target_port(pod, target)) for pod in ready)
            if not plain:
                result.append(Forward(address, number, ends))
            else:
                result += [Forward(host, number, ((host, p),)) for host, p in ends if p != number]
    return result


def behind(service: Mapping[str, Any], pods: Iterable[Pod]) -> list[Pod]:
    """The pods that a Service sends connections to."""
    return [pod for pod in pods if _has_address(pod) and _selects(service, pod)]


def target_port(pod: Mapping[str, Any], target: int | str) -> int:
    """A Service's targetPort as the number of the pod's port; 0 for a name that it has not."""
    if isinstance(target, int) or target.isdigit():
        return int(target)
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if port.get("name") == target:
                return int(port["containerPort"])
    return 0


def _has_address(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return bool(status.get("podIP")) and status.get("phase") not in ("Succeeded", "Failed")


def _selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels", {})
    if pod["metadata"]["namespace"] != service["metadata"]["namespace"]:
        return False
    if not all(labels.get(k) == v for k, v in service["spec"]["selector"].items()):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
