"""Finds the processes of pods that a fault is to hit.

Looked for below the shim of one cluster only, so that no other is ever touched.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from trainyard.payloads.processes import (
    Process,
    all_processes,
    arguments,
    children_of,
    descendants,
    name_of,
    read,
)
from trainyard.schema.dataclass import dataclass

_POD_RUNTIME = "trainyard-shim"
_INIT = "pod-init"
_HOLDER = b"/t9k/hold/hold.py"
"""Stays beside what it starts, as the container's first process does."""


@dataclass(frozen=True, slots=True)
class TargetReplica:
    """The processes of one container in which something trains, or the like."""

    host: str
    """The host name of its pod."""
    processes: tuple[Process, ...]
    """All of them but the container's first process, which only looks after the others."""
    main: Process
    """A rank, where there is one, else what the container runs."""
    rank: str
    """Its number, as its environment says; empty where that says nothing."""


def find_pod_runtime(cluster: int) -> Process | None:
    """The shim that the process of a cluster has started."""
    processes = all_processes()
    for pid in children_of(processes).get(cluster, ()):
        if name_of(pid) == _POD_RUNTIME:
            return processes.get(pid)
    return None


def find_child(parent: int, word: bytes) -> Process | None:
    """A child of a process that has this word in its command line."""
    processes = all_processes()
    for pid in children_of(processes).get(parent, ()):
        with suppress(OSError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return processes.get(pid)
    return None


def find_replicas(pod_runtime: Process, hosts: Iterable[str]) -> list[TargetReplica]:
    """What runs in the pods of these host names, one container each: that with ranks, else the
    first; by host name."""
    processes = all_processes()
    if processes.get(pod_runtime.pid, pod_runtime)[:2] != pod_runtime[:2]:
        return []
    tree, wanted = children_of(processes), set(hosts)
    found: dict[str, TargetReplica] = {}
    for first in sorted(tree.get(pod_runtime.pid, ())):
        below = [processes[pid] for pid in sorted(descendants(first, tree)) if pid in processes]
        living = [each for each in below if not each.is_dead]
        if name_of(first) != _INIT or not living:
            continue
        host = process_environment(living[0].pid).get("HOSTNAME", "")
        if host not in wanted:
            continue
        replica = _replica(host, first, living)
        if host not in found or (replica.rank and not found[host].rank):
            found[host] = replica
    return [found[host] for host in sorted(found)]


def _replica(host: str, first: int, living: list[Process]) -> TargetReplica:
    holders = {each.pid for each in living if _HOLDER in arguments(each.pid)}
    living = [each for each in living if each.pid not in holders] or living
    ranks = dict(_ranks(living))
    top = [each for each in living if each.pid in ranks and each.parent not in ranks]
    mains = top or [each for each in living if each.parent in {first, *holders}] or living
    return TargetReplica(host, tuple(living), mains[0], ranks.get(mains[0].pid, ""))


def _ranks(living: list[Process]) -> Iterator[tuple[int, str]]:
    for each in living:
        if rank := process_environment(each.pid).get("RANK"):
            yield each.pid, rank


def process_environment(pid: int) -> Mapping[str, str]:
    """The variables that a process was started with; none if it is gone, or not ours to see."""
    text = ""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def is_alive(process: Process) -> bool:
    """Whether the process still runs; another one with the same id does not count."""
    now = read(process.pid)
    return now is not None and now.started == process.started and not now.is_dead


def send_signal(processes: Iterable[Process], number: signal.Signals) -> int:
    """Send a signal to the processes that still run; returns to how many."""
    count = 0
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            descriptor = os.pidfd_open(process.pid)
            try:
                if is_alive(process):
                    signal.pidfd_send_signal(descriptor, number)
                    count += 1
            finally:
                os.close(descriptor)
    return count
