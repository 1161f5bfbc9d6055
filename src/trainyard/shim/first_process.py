"""The first process of a container: from ``clone`` to its isolation.

It runs in a child of the shim, which learns about it through a status pipe: a ``Progress`` with
an ``error``, or ``started``, and at the end the exit code. Nothing may raise past :func:`spawn`.
"""

from __future__ import annotations

import os
import signal

from trainyard.shim import program, rootfs, supervisor
from trainyard.shim import syscalls as sys
from trainyard.shim.program import Surroundings
from trainyard.shim.protocol import Start


def spawn(start: Start, around: Surroundings, status: int, output: int) -> int:
    """Start a container; returns the process id of its supervisor (decision 45)."""
    plain = around.kind == "plain"
    pid = sys.clone(0 if plain else sys.CLONE_NEWPID)
    if pid:
        return pid
    code, old_root = program.CANNOT_START, -1
    try:
        signal.set_wakeup_fd(-1)
        if plain:
            sys.die_with_parent(signal.SIGTERM)
            sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
        else:
            sys.die_with_parent()
            old_root = _isolate(start, around)
        code = supervisor.supervise(start.program, around, status, output, old_root)
    except BaseException as error:
        program.report(status, error)
    finally:
        os._exit(code)


def _isolate(start: Start, around: Surroundings) -> int:
    sys.join_cgroups(start.program.cgroups)
    for fd, flag in around.namespaces:
        sys.setns(fd, flag)
    sys.unshare(sys.CLONE_NEWNS)
    assert start.root is not None
    return rootfs.enter(start.root, around.base, rootless=around.kind == "rootless")
