"""Containers without namespaces: a supervisor process holds each together.

Where the kernel cannot end a whole container at once, a supervisor does: it is the container's
sub-reaper, so that processes which leave their session still are its descendants, and it kills
them when the container's program ends, when it is told to (SIGTERM) and when the shim dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

from trainyard.local.node import container
from trainyard.local.node import syscalls as sys


def spawn(spec: dict[str, Any], around: container.Surroundings, status: int, output: int) -> int:
    """Start a container under a supervisor; returns the supervisor's process id."""
    pid = sys.clone(0)
    if pid:
        return pid
    code = container.CANNOT_START
    try:
        code = _supervise(spec, around, status, output)
    except BaseException as error:
        container.report(status, error)
    finally:
        os._exit(code)


def _supervise(
    spec: dict[str, Any], around: container.Surroundings, status: int, output: int
) -> int:
    signal.set_wakeup_fd(-1)
    watched = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    sys.die_with_parent(signal.SIGTERM)
    sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()
    failure_reader, failure_writer = os.pipe2(os.O_CLOEXEC)
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            container.execute(spec, around, output)
        except BaseException as error:
            container.report(failure_writer, error)
    os.close(failure_writer)
    close_others({status, failure_reader})
    failure = os.read(failure_reader, 65536)
    if failure:
        os.write(status, failure)
        return container.CANNOT_START
    return _watch(pid, status, watched)


def _watch(pid: int, status: int, watched: set[signal.Signals]) -> int:
    os.write(status, json.dumps({"init": pid}).encode() + b"\n")
    ended: int | None = None
    while ended is None:
        number = signal.sigwait(watched)
        if number == signal.SIGTERM:
            _kill_descendants()
        ended = _reap(pid)
    _end_rest()
    code = os.waitstatus_to_exitcode(ended)
    record = {"code": code if code >= 0 else 128 - code, "signal": max(0, -code)}
    os.write(status, json.dumps(record).encode() + b"\n")
    return 0


def close_others(kept: set[int]) -> None:
    """Close all descriptors but ``kept`` and the standard ones."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _reap(init: int) -> int | None:
    """Reap what has ended; returns the wait status of ``init`` if it is among it."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == init:
                return status
            if not pid:
                return None
    return None


def _kill_descendants() -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_rest() -> None:
    """Kill until nothing is left; orphans of the killed become our children and go next."""
    while True:
        _kill_descendants()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def descendants(ancestor: int) -> list[int]:
    """Living processes beneath ``ancestor``, by the parent field of /proc/*/stat."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    parents[int(name)] = int(fields[1])
    found: list[int] = []
    for pid in parents:
        walk = pid
        while walk in parents and walk != ancestor:
            walk = parents[walk]
        if walk == ancestor and pid != ancestor:
            found.append(pid)
    return found
