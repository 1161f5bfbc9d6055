"""Which connections the relay forwards: Services with a cluster address, and the pods behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Forward = tuple[str, int, list[tuple[str, int]]]


def forwards(
    services: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], *, plain: bool
) -> list[Forward]:
    """(address, port, endpoints) for every TCP port of a Service that has an own address.

    In plain mode a Service's address does not exist: peers are given the address of its pod. A
    forward is then only needed where the port differs from the target's.
    """
    running = [pod for pod in pods if pod.get("status", {}).get("podIP") and not _is_over(pod)]
    result: list[Forward] = []
    for service in services:
        spec = service["spec"]
        address = spec.get("clusterIP", "")
        if address in ("", "None") or not spec.get("selector"):
            continue
        behind = [pod for pod in running if _selects(service, pod)]
        for port in spec.get("ports", ()):
            if port.get("protocol", "TCP") != "TCP":
                continue
            number, target = port["port"], port.get("targetPort") or port["port"]
            ends = [(pod["status"]["podIP"], _target(pod, target)) for pod in behind]
            if not plain:
                result.append((address, number, ends))
            else:
                result += [(host, number, [(host, p)]) for host, p in ends if p != number]
    return result


def _is_over(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


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


def _target(pod: Mapping[str, Any], target: int | str) -> int:
    if isinstance(target, int) or target.isdigit():
        return int(target)
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if port.get("name") == target:
                return int(port["containerPort"])
    return 0
