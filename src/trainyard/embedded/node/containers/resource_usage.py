"""Measures what containers use of CPU, memory and GPUs, on request only.

CPU time and memory are the control group's where a container has one that counts them. Otherwise
they are put together from /proc: its first process is above all others, and has the times of those
that it reaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from trainyard.embedded.kubelet_api import ResourceUsage, UsageSample
from trainyard.schema.dataclass import dataclass

_FRESH_SECONDS = 0.9
"""A younger sample is returned again, so that many requests cost one measurement."""
_WINDOW_SECONDS = 0.5
_LONGEST_WINDOW_SECONDS = 30.0
"""An older reading is too old for a difference; another one is taken first."""
_GPU_SECONDS = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
_KIB = 1024
_RESIDENT = ("RssAnon:", "RssShmem:")
"""Memory that is not page cache."""


class RunningContainer(NamedTuple):
    """A container that runs; ``pid`` is its first process, ``gpus`` minor numbers."""

    pod: str
    name: str
    pid: int
    cgroups: Sequence[str] = ()
    gpus: Sequence[int] = ()


class _Process(NamedTuple):
    parent: int
    seconds: float
    """Of CPU, with that of the children it waited for."""


class _Reading(NamedTuple):
    """CPU times in seconds and memory in bytes, of each container and of the machine."""

    at: float
    seconds: Mapping[tuple[str, str, int], float]
    memory: Mapping[tuple[str, str, int], int]
    machine_seconds: float
    machine_memory: int


@dataclass(slots=True)
class UsageMeter:
    """Remembers the last reading, since what is used of CPU is the difference of two."""

    _last_reading: _Reading | None = None
    _last_sample: UsageSample | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def measure(self, running: Sequence[RunningContainer]) -> UsageSample:
        """What these use; takes half a second where nobody has asked for a while."""
        async with self._lock:
            now = time.monotonic()
            if (
                self._last_sample is not None
                and self._last_reading
                and now - self._last_reading.at < _FRESH_SECONDS
            ):
                return self._last_sample
            gpus = asyncio.create_task(asyncio.to_thread(_gpus, [box.gpus for box in running]))
            before = self._last_reading
            if before is None or now - before.at > _LONGEST_WINDOW_SECONDS:
                before = await asyncio.to_thread(_read, running)
                await asyncio.sleep(_WINDOW_SECONDS)
            self._last_reading = await asyncio.to_thread(_read, running)
            self._last_sample = _usage_between(running, before, self._last_reading, await gpus)
            return self._last_sample


def _usage_between(
    running: Iterable[RunningContainer],
    before: _Reading,
    now: _Reading,
    gpus: Mapping[int, tuple[float, int]],
) -> UsageSample:
    window = now.at - before.at
    containers: dict[str, dict[str, ResourceUsage]] = {}
    for box in running:
        if (key := box[:3]) in now.seconds:  # else it has ended just now
            # One that was not there before has used all its time since.
            spent = now.seconds[key] - before.seconds.get(key, 0.0)
            cpu = max(0.0, spent) / window
            usage = ResourceUsage(cpu, now.memory[key], *_gpu_usage(box.gpus, gpus))
            containers.setdefault(box.pod, {})[box.name] = usage
    cpu = max(0.0, now.machine_seconds - before.machine_seconds) / window
    node = ResourceUsage(cpu, now.machine_memory, *_gpu_usage(list(gpus), gpus))
    return UsageSample(time.time(), window, node, containers)


def _gpu_usage(
    own: Sequence[int], gpus: Mapping[int, tuple[float, int]]
) -> tuple[float | None, int | None]:
    found = [gpus[number] for number in own if number in gpus]
    if not found:
        return None, None
    return sum(busy for busy, _ in found), sum(memory for _, memory in found)


# -- CPU and memory ------------------------------------------------------------------------------


def _read(running: Sequence[RunningContainer]) -> _Reading:
    seconds, memory = {}, {}
    trees = _ProcessTrees() if any(not _cgroup_usage(box.cgroups) for box in running) else None
    for box in running:
        counted = _cgroup_usage(box.cgroups)
        if counted is None and trees is not None:
            counted = trees.usage_of(box.pid)
        if counted is not None:
            seconds[box[:3]], memory[box[:3]] = counted
    return _Reading(time.monotonic(), seconds, memory, *_machine())


def _cgroup_usage(groups: Iterable[str]) -> tuple[float, int] | None:
    """What control groups tell; None unless they count both CPU time and memory."""
    seconds = memory = None
    for folder in groups:
        path = Path(folder)
        with contextlib.suppress(OSError, ValueError, KeyError):  # version 2
            seconds = _fields(path / "cpu.stat")["usage_usec"] / 1e6
        with contextlib.suppress(OSError, ValueError):  # version 1
            seconds = int((path / "cpuacct.usage").read_text()) / 1e9
        for file, idle in (
            ("memory.current", "inactive_file"),
            ("memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(OSError, ValueError):
                used = int((path / file).read_text())
                memory = max(0, used - _fields(path / "memory.stat").get(idle, 0))
    return None if seconds is None or memory is None else (seconds, memory)


def _fields(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs}


class _ProcessTrees:
    """All processes of the machine, by what is above them."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._below: dict[int, list[int]] = {}
        with os.scandir("/proc") as entries:
            numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
        for pid in numbers:
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                # proc_pid_stat(5): from the third field on.
                ticks = sum(map(int, fields[11:15]))
                self._processes[pid] = _Process(int(fields[1]), ticks / _TICKS)
                self._below.setdefault(int(fields[1]), []).append(pid)

    def usage_of(self, first: int) -> tuple[float, int] | None:
        """CPU seconds and memory of all below a container's first process; None if it is gone.

        That one is ours: its times are those of what it reaped, and its memory does not count.
        """
        if first not in self._processes:
            return None
        seconds, memory, left = self._processes[first].seconds, 0, list(self._below.get(first, ()))
        while left:
            pid = left.pop()
            seconds += self._processes[pid].seconds
            memory += _resident_memory(pid)
            left += self._below.get(pid, ())
        return seconds, memory


def _resident_memory(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as lines:
        return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith(_RESIDENT))
    return 0


def _machine() -> tuple[float, int]:
    """CPU seconds since its start, and bytes of memory that are not available."""
    with open("/proc/stat") as file:
        fields = [int(number) for number in file.readline().split()[1:9]]
    user, nice, system, _idle, _waiting, *interrupts = fields
    with open("/proc/meminfo") as lines:
        amounts = {line.split()[0]: int(line.split()[1]) * _KIB for line in lines}
    used = amounts["MemTotal:"] - amounts.get("MemAvailable:", amounts["MemFree:"])
    return (user + nice + system + sum(interrupts)) / _TICKS, used


# -- GPUs ----------------------------------------------------------------------------------------

_QUERY = ("--query-gpu=pci.bus_id,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_MIB = 1 << 20


def _gpus(wanted: Iterable[Sequence[int]]) -> dict[int, tuple[float, int]]:
    """Of each GPU, by minor number, how busy it is (0 to 1) and bytes of its memory that are used.

    Nothing is asked where no container has one, and nothing told where `nvidia-smi` is missing.
    """
    program = shutil.which("nvidia-smi") if any(wanted) else None
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_GPU_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for place, line in enumerate(done.stdout.splitlines()):
        address, *figures = [text.strip() for text in line.split(",")]
        with contextlib.suppress(ValueError):  # "[N/A]", as for a GPU that is cut up
            busy, memory = map(float, figures)
            found[_minor(address, place)] = (busy / 100, int(memory) * _MIB)
    return found


def _minor(address: str, place: int, drivers: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """The number of a GPU's device node; where the driver does not tell, its place in the list."""
    domain, _, rest = address.lower().partition(":")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        text = (drivers / f"{domain[-4:]}:{rest}" / "information").read_text()
        line = next(each for each in text.splitlines() if each.startswith("Device Minor"))
        return int(line.partition(":")[2])
    return place
