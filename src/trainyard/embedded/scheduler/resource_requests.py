"""Resource requests as whole numbers: CPU in thousandths of a core, the rest in units or bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.schema import quantity

CPU = "cpu"
MEMORY = "memory"
STORAGE = "ephemeral-storage"
PODS = "pods"
SHARED = frozenset({CPU, MEMORY, STORAGE})
"""Resources that can be overcommitted; devices cannot."""

Amounts = dict[str, int]


def pod_requests(pod: Mapping[str, Any]) -> Amounts:
    """The pod's effective request, as Kubernetes adds it up.

    The larger of the sum of all containers (sidecars included) and of what any init container
    needs beside the sidecars started before it; plus the overhead. A limit without a request
    counts as the request.
    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    spec = pod["spec"]
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = _container(container)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, wanted)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(sidecars, wanted))
    running = sidecars
    for container in spec.get("containers") or ():
        running = add(running, _container(container))
    total = add(maximum(peak, running), amounts(spec.get("overhead") or {}))
    return {name: amount for name, amount in total.items() if amount}


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """A Kubernetes resource list as whole numbers."""
    return {name: amount(name, value) for name, value in quantities.items()}


def amount(name: str, value: str | int | float) -> int:
    """One quantity of resource `name` as a whole number."""
    return quantity.parse_milli(value) if name == CPU else quantity.parse_int(value)


def format_amount(name: str, value: int) -> str:
    """The reverse of `amount`, for users and for objects."""
    if name == CPU:
        return quantity.format_cpu(value)
    return quantity.format_bytes(value) if name in SHARED else str(value)


def describe_amount(name: str, value: int) -> str:
    """`3.9Gi memory`, `2 cpu`: short enough for a sentence."""
    if name in (MEMORY, STORAGE) and value >= 1 << 30:
        return f"{value / (1 << 30):.3g}Gi {name}"
    return f"{format_amount(name, value)} {name}"


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The sum per resource."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum of many."""
    result: Amounts = {}
    for part in parts:
        for name, value in part.items():
            result[name] = result.get(name, 0) + value
    return result


def maximum(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The larger per resource."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _container(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
