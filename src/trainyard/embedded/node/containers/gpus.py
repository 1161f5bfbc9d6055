"""Hands out the machine's NVIDIA GPUs to containers, each of which sees its own only.

In namespaces a pod's /dev holds the nodes of its own GPUs; without, CUDA_VISIBLE_DEVICES has to
do. Devices that are only pretended (more asked for than the machine has) are none (decision 40).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

RESOURCE = "nvidia.com/gpu"
_NODE = re.compile(r"nvidia(\d+)")
_SHARED_NODES = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)


def detect() -> tuple[int, ...]:
    """The minor numbers of the machine's GPUs, by their device nodes."""
    matches = (_NODE.fullmatch(name) for name in os.listdir("/dev"))
    return tuple(sorted(int(match[1]) for match in matches if match))


def requested(container: Mapping[str, Any]) -> int:
    """How many GPUs a container asks for: its limit, else its request."""
    resources = container.get("resources", {})
    amount = resources.get("limits", {}).get(RESOURCE, resources.get("requests", {}).get(RESOURCE))
    return int(amount or 0)


class GpuPool:
    """Hands out the GPUs of a node."""

    def __init__(self, devices: Iterable[int]) -> None:
        self._free = sorted(devices)
        self._assigned: dict[str, dict[str, list[int]]] = {}

    def take(self, pod: str, container: str, count: int) -> list[int]:
        """``count`` GPUs for a container, the same as before after a restart; or what is left."""
        assigned = self._assigned.setdefault(pod, {})
        if container not in assigned:
            assigned[container], self._free = self._free[:count], self._free[count:]
        return assigned[container]

    def restore(self, pod: str, container: str, devices: Iterable[int]) -> None:
        """Take over the GPUs of a container that an earlier agent started."""
        taken = [device for device in devices if device in self._free]
        self._free = [device for device in self._free if device not in taken]
        self._assigned.setdefault(pod, {})[container] = taken

    def release(self, pod: str) -> None:
        for devices in self._assigned.pop(pod, {}).values():
            self._free = sorted({*self._free, *devices})


def device_nodes(devices: Iterable[int]) -> list[str]:
    """The device files of these GPUs; none for none."""
    own = [f"/dev/nvidia{number}" for number in devices]
    return [*own, *_SHARED_NODES] if own else []
