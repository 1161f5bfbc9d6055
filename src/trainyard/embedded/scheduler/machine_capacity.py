"""What this machine has: CPUs, memory, disk and GPUs, within the limits this process is under."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainyard.embedded.node.containers.gpus import detect as gpus_found
from trainyard.embedded.scheduler.resource_requests import CPU, MEMORY, PODS, STORAGE, Amounts
from trainyard.schema.dataclass import dataclass

GPU = "nvidia.com/gpu"
MAX_PODS = 1000
"""A Linux bridge takes 1,023 ports; some are left for the cluster's own."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Capacity:
    """`amounts` includes pretended resources; `gpus` are the minor numbers of the real ones."""

    amounts: Amounts
    gpus: tuple[int, ...] = ()


def detect(folder: Path, pretended: Mapping[str, int]) -> Capacity:
    """Look at the machine; `folder` is where pods write, `pretended` replaces real amounts.

    Decision 39.
    """
    gpus = gpus_found()
    found: Amounts = {
        CPU: _cpu_milli(),
        MEMORY: _memory_bytes(),
        STORAGE: _disk_bytes(folder),
        PODS: MAX_PODS,
    }
    if gpus:
        found[GPU] = len(gpus)
    real = () if GPU in pretended else gpus
    return Capacity({**found, **pretended}, real)


def _cpu_milli() -> int:
    milli = len(os.sched_getaffinity(0)) * 1000
    limit, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if limit.isdigit() and period.strip().isdigit():
        milli = min(milli, int(limit) * 1000 // int(period))
    return max(milli, 1)


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(_CGROUP / "memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _disk_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).total


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
