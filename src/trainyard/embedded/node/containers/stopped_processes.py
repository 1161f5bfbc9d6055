"""Processes of pods that are stopped by a signal: only who stands outside of them can tell.

What observes a rank from inside is stopped with it (decision 291).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

_STOPPED = b"T"
"""proc_pid_stat(5); of one that a debugger holds it is a small letter."""


def find_stopped_processes(firsts: Collection[int]) -> Mapping[int, tuple[int, ...]]:
    """Of containers' first processes: the stopped ones below each, by their numbers in the pod.

    Nothing is looked at without containers; one scan of /proc else.
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
    """Its number in the innermost of its namespaces; its own if it is gone."""
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
