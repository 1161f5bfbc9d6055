"""CPU and memory limits by control groups, version 1 or 2, where they may be written.

One group per container run, beneath ``trainyard`` in each hierarchy. Where groups cannot be made
(without root, in most containers) limits are not enforced; nothing else changes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.schema import quantity

_ROOT = "/sys/fs/cgroup"
_TOP = "trainyard"
_PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory in bytes, CPU in thousandths of a core; 0 means no limit."""

    memory: int
    cpu: int

    @classmethod
    def of(cls, container: Mapping[str, Any]) -> Limits:
        limits = container.get("resources", {}).get("limits", {})
        memory = quantity.parse_int(limits["memory"]) if "memory" in limits else 0
        cpu = quantity.parse_milli(limits["cpu"]) if "cpu" in limits else 0
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory >= whole:
            memory = 0
        if cpu >= 1000 * (os.cpu_count() or 1):
            cpu = 0
        return cls(memory, cpu)


def create(name: str, limits: Limits) -> list[str]:
    """Make the group ``name``; returns the folders whose ``cgroup.procs`` to join."""
    if not limits.memory and not limits.cpu:
        return []
    cpu = limits.cpu * _PERIOD_MICROSECONDS // 1000
    if os.path.exists(f"{_ROOT}/cgroup.controllers"):
        settings: dict[str, int | str] = {}
        if limits.memory:
            settings = {"memory.max": limits.memory, "memory.swap.max": 0, "memory.oom.group": 1}
        if cpu:
            settings["cpu.max"] = f"{cpu} {_PERIOD_MICROSECONDS}"
        return _make(_ROOT, name, settings)
    made = []
    if limits.memory:
        made += _make(f"{_ROOT}/memory", name, {"memory.limit_in_bytes": limits.memory})
    if cpu:
        settings = {"cpu.cfs_period_us": _PERIOD_MICROSECONDS, "cpu.cfs_quota_us": cpu}
        made += _make(f"{_ROOT}/cpu", name, settings)
    return made


def _make(hierarchy: str, name: str, settings: Mapping[str, Any]) -> list[str]:
    top = f"{hierarchy}/{_TOP}"
    folder = f"{top}/{name}"
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(f"{hierarchy}/cgroup.controllers"):
            _enable(hierarchy)
            _enable(top)
        for file, value in settings.items():
            with contextlib.suppress(FileNotFoundError), open(f"{folder}/{file}", "w") as target:
                target.write(str(value))
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return []
    return [folder]


def _enable(folder: str) -> None:
    with open(f"{folder}/cgroup.subtree_control", "w") as file:
        file.write("+memory +cpu")


def was_out_of_memory(folders: list[str]) -> bool:
    """Whether the kernel killed something in these groups because memory ran out."""
    for folder in folders:
        for file in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError), open(f"{folder}/{file}") as lines:
                for line in lines:
                    field, _, value = line.partition(" ")
                    if field == "oom_kill" and int(value):
                        return True
    return False


def remove(folders: list[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def remove_stale() -> None:
    """Remove the groups that killed clusters left behind; one that is in use stays."""
    for hierarchy in (_ROOT, f"{_ROOT}/memory", f"{_ROOT}/cpu"):
        top = f"{hierarchy}/{_TOP}"
        with contextlib.suppress(OSError):
            remove([f"{top}/{name}" for name in os.listdir(top)])
