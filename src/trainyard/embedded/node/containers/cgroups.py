"""Limits of CPU, memory and processes by control groups, version 1 or 2, where they may be written.

One group per container run, beneath a folder per cluster, beneath ``trainyard`` in each hierarchy.
Where groups cannot be made (without root, in most containers) these limits are not enforced; how
many processes a pod may have is then limited by other means (``podruntime.confinement``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.podruntime.processes.confinement import has_process_numbers
from trainyard.schema import quantity
from trainyard.schema.dataclass import dataclass

_ROOT = "/sys/fs/cgroup"
_TOP = "trainyard"
_PERIOD_MICROSECONDS = 100_000
_MOST_PROCESSES = 1 << 15
_CONTROLLERS = ("memory", "cpu", "pids")
_LIMIT_FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
}


def default_pids_limit() -> int:
    """Half of the kernel's process ids, so that one container cannot use up all (decision 75)."""
    with open("/proc/sys/kernel/pid_max") as file:
        return min(_MOST_PROCESSES, int(file.read()) // 2)


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Memory in bytes, CPU in thousandths of a core, processes (and threads); 0 means no limit."""

    memory: int
    cpu: int
    processes: int = 0

    @classmethod
    def from_container(cls, container: Mapping[str, Any], processes: int = 0) -> ContainerLimits:
        """A limit of all that the machine has is none."""
        limits = container.get("resources", {}).get("limits", {})
        memory = quantity.parse_int(limits["memory"]) if "memory" in limits else 0
        cpu = quantity.parse_milli(limits["cpu"]) if "cpu" in limits else 0
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory >= whole:
            memory = 0
        if cpu >= 1000 * (os.cpu_count() or 1):
            cpu = 0
        return cls(memory, cpu, processes)

    def unenforced(self, folders: list[str]) -> list[str]:
        """Which of ``memory`` and ``cpu`` are wanted and not limited by the groups ``folders``."""
        wanted = {"memory": self.memory, "cpu": self.cpu}
        return [
            name
            for name, files in _LIMIT_FILES.items()
            if wanted[name]
            and not any(os.path.exists(f"{folder}/{f}") for folder in folders for f in files)
        ]


class ClusterGroups:
    """The groups of one cluster's containers; those that ended clusters left are removed.

    A cluster holds its folders open and locked (shared, so that who takes the cluster over may do
    so early). Only the folders of clusters that are no more can be locked by others: an empty group
    may be that of a container whose end its own cluster has yet to look at.
    """

    def __init__(self, state_dir: str) -> None:
        digest = hashlib.sha256(os.path.realpath(state_dir).encode())
        self._name = digest.hexdigest()[:12]
        self._locked_folders: dict[str, int] = {}
        self._is_unified = os.path.exists(f"{_ROOT}/cgroup.controllers")
        hierarchies = [_ROOT] if self._is_unified else [f"{_ROOT}/{c}" for c in _CONTROLLERS]
        for hierarchy in hierarchies:
            with contextlib.suppress(OSError):
                _remove_stale(f"{hierarchy}/{_TOP}", self._name)

    def create(self, name: str, limits: ContainerLimits, *, is_plain: bool = False) -> list[str]:
        """Make the group ``name``; returns the folders whose ``cgroup.procs`` to join.

        Joining a group costs milliseconds, so none is made for limits that work without.
        """
        cpu = limits.cpu * _PERIOD_MICROSECONDS // 1000
        settings: dict[str, Mapping[str, int | str]] = {}
        is_joined = self._is_unified and bool(limits.memory or cpu)
        if limits.processes and (is_plain or is_joined or not has_process_numbers()):
            settings["pids"] = {"pids.max": limits.processes}
        if self._is_unified:
            if limits.memory:
                settings["memory"] = {
                    "memory.max": limits.memory,
                    "memory.swap.max": 0,
                    "memory.oom.group": 1,
                }
            if cpu:
                settings["cpu"] = {"cpu.max": f"{cpu} {_PERIOD_MICROSECONDS}"}
            together = {file: value for most in settings.values() for file, value in most.items()}
            return self._make(_ROOT, name, together) if together else []
        if limits.memory:
            settings["memory"] = {"memory.limit_in_bytes": limits.memory}
        if cpu:
            settings["cpu"] = {"cpu.cfs_period_us": _PERIOD_MICROSECONDS, "cpu.cfs_quota_us": cpu}
        made = []
        for controller, most in settings.items():
            made += self._make(f"{_ROOT}/{controller}", name, most)
        return made

    def _make(self, hierarchy: str, name: str, settings: Mapping[str, int | str]) -> list[str]:
        folder = f"{hierarchy}/{_TOP}/{self._name}/{name}"
        try:
            self._lock_cluster_folder(hierarchy)
            os.makedirs(folder, exist_ok=True)
            for file, value in settings.items():
                with contextlib.suppress(FileNotFoundError):
                    _write(f"{folder}/{file}", value)
        except OSError:
            remove([folder])
            return []
        return [folder]

    def _lock_cluster_folder(self, hierarchy: str) -> None:
        """Make the cluster's folder in ``hierarchy``, once, so that nobody else removes it."""
        if hierarchy in self._locked_folders:
            return
        top = f"{hierarchy}/{_TOP}"
        own = f"{top}/{self._name}"
        if not os.path.isdir(hierarchy):
            raise FileNotFoundError(hierarchy)
        os.makedirs(top, exist_ok=True)
        with _locked(top):
            os.makedirs(own, exist_ok=True)
            fd = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
        self._locked_folders[hierarchy] = fd
        if self._is_unified:
            for folder in (hierarchy, top, own):
                for controller in _CONTROLLERS:
                    with contextlib.suppress(OSError):  # whatever is missing limits nothing
                        _write(f"{folder}/cgroup.subtree_control", f"+{controller}")

    def close(self) -> None:
        """Remove the groups of this cluster, of which no container is left."""
        for hierarchy, fd in self._locked_folders.items():
            with contextlib.suppress(OSError):
                _remove_all(f"{hierarchy}/{_TOP}/{self._name}")
            os.close(fd)
        self._locked_folders.clear()


def _write(path: str, value: int | str) -> None:
    # Not made where it is missing: on version 2 that is refused with another error.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove_stale(top: str, own: str) -> None:
    """Remove the folders in ``top`` of clusters that are no more; a group in use stays."""
    if not os.path.isdir(top):
        return
    with _locked(top):
        for name in _groups(top):
            folder = f"{top}/{name}"
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if name != own:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_all(folder)
            except OSError:
                continue
            finally:
                os.close(fd)


def _remove_all(cluster: str) -> None:
    remove([f"{cluster}/{name}" for name in _groups(cluster)])
    remove([cluster])


def _groups(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def had_oom_kill(folders: list[str]) -> bool:
    """Whether the kernel killed something in these groups because memory ran out."""
    return any(
        _count(folders, file, "oom_kill") for file in ("memory.events", "memory.oom_control")
    )


def pids_limit_hits(folders: list[str]) -> int:
    """How often a process or thread was refused because these groups had as many as they may."""
    return _count(folders, "pids.events", "max")


def _count(folders: list[str], file: str, wanted: str) -> int:
    for folder in folders:
        with contextlib.suppress(OSError), open(f"{folder}/{file}") as lines:
            for line in lines:
                field, _, value = line.partition(" ")
                if field == wanted:
                    return int(value)
    return 0


def remove(folders: list[str]) -> None:
    """Remove groups; one that still has processes, or is gone, is left."""
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
