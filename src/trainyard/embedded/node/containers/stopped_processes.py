"""Finds processes of pods that a signal has stopped.

An observer inside the rank is stopped with it, so the node looks from outside (decision 291).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

_STOPPED = b"T"
"""See proc_pid_stat(5); a process that a debugger holds has a small t."""


def find_stopped_processes(firsts: Collection[int]) -> Mapping[int, tuple[int, ...]]:
    """The stopped descendants of each first process of a container, by their ids in the pod.

    Costs one scan of /proc, or nothing without containers.
    """
    if not firsts:
        return {}
    below: dict[int, list[int]] = {}
    stopped: set[int] = set()
    with os.scandir("/proc") as entries:
        numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in numbers:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            below.setdefault(int(fields[1]), []).append(pid)
            if fields[0] == _STOPPED:
                stopped.add(pid)
    found = {first: _descendants(first, below) & stopped for first in firsts} if stopped else {}
    return {
        first: tuple(sorted(map(_pid_in_namespace, pids))) for first, pids in found.items() if pids
    }


def _descendants(first: int, below: Mapping[int, list[int]]) -> set[int]:
    found: set[int] = set()
    left = [first]
    while left:
        children = below.get(left.pop(), ())
        found.update(children)
        left += children
    return found


def _pid_in_namespace(pid: int) -> int:
    """The process id in the innermost namespace; ``pid`` itself if the process is gone."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
