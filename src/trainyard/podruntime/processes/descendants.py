"""Killing all descendants of this process without namespaces. It must be a subreaper."""

from __future__ import annotations

import contextlib
import os
import signal

_LOOK_SECONDS = 0.02


def kill() -> bool:
    """Send SIGKILL to all descendants; False if this user may kill none of them (sudo)."""
    killed = refused = False
    for pid in _descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            pass
        except PermissionError:
            refused = True
    return killed or not refused


def end_all() -> None:
    """Kill and reap until nothing is left that this user may kill. SIGCHLD must be blocked.

    Orphans of those killed, even if forked meanwhile, become our children and go next.
    """
    while has_children() and kill():
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)


def has_children() -> bool:
    """Reap what has ended; returns whether children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Child processes of this process, zombies included."""
    try:
        with open("/proc/thread-self/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        own = os.getpid()
        return [pid for pid, parent in _parents().items() if parent == own]


def _descendants(ancestor: int) -> list[int]:
    """Living processes beneath ``ancestor``."""
    parents = _parents()
    found: list[int] = []
    for pid in parents:
        walk = pid
        while walk in parents and walk != ancestor:
            walk = parents[walk]
        if walk == ancestor and pid != ancestor:
            found.append(pid)
    return found


def _parents() -> dict[int, int]:
    """The parent of each living process, from /proc/*/stat."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(name)] = int(fields[1])
    return found
