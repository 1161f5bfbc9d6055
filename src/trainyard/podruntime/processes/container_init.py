"""A container's first process: enters its isolation, starts the program, and waits for its end.

It reaps orphans and forwards signals. It reports to the shim through its channel: an error, or that
the program has started, and finally the exit code.

In namespaces it is the container's process 1, and its end kills everything in there. Without
namespaces it is a subreaper, so that even processes that leave their session stay its descendants.
It kills those itself: when the program ends, on KILL_ALL, and when the shim dies (SIGTERM from the
kernel). Either way the program is an ordinary process: a signal that it does not handle ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.filesystem import rootfs
from trainyard.podruntime.filesystem.base_mounts import MountPoints
from trainyard.podruntime.processes import confinement, descendants, program
from trainyard.podruntime.processes.child_channel import send_report, try_send_report
from trainyard.podruntime.processes.child_tasks import (
    CANNOT_START,
    FORWARDED_SIGNALS,
    KILL_ALL,
    ChildReport,
    ClusterContext,
    StartError,
)
from trainyard.podruntime.protocol import Program, Start, from_raw, to_raw

WATCHED_SIGNALS = frozenset({signal.SIGCHLD, KILL_ALL, *FORWARDED_SIGNALS})
"""Blocked from a child's beginning, so that none is lost and none ends it."""
_CAP_KILL = 1 << 5


def run(
    start: Start,
    context: ClusterContext,
    namespaces: Mapping[int, int],
    channel: int,
    streams: Sequence[int],
    mounted: MountPoints | None,
) -> int:
    """Be the container's first process to its end; returns this process's exit code.

    ``namespaces``: the pod's, as descriptors by kind. ``mounted``: the mounts to build the root on;
    None without namespaces. ``streams``: the output, and behind it the input if there is one; empty
    with a terminal.
    """
    sys.join_cgroups(start.program.cgroups)
    if mounted is None:
        become_subreaper()
    else:
        _isolate(start, context, namespaces, mounted)
        if not start.share_processes_with:
            return _supervise(start, context, channel, streams)
        sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
    try:
        return _supervise(start, context, channel, streams)
    finally:
        descendants.end_all()


def become_subreaper() -> None:
    """Adopt all descendants, and get SIGTERM when the parent ends."""
    sys.die_with_parent(signal.SIGTERM)
    sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()


def _isolate(
    start: Start, context: ClusterContext, namespaces: Mapping[int, int], mounted: MountPoints
) -> None:
    """Leave the host's namespaces and root. The pod's user namespace is entered later."""
    if not start.share_processes_with:
        confinement.limit_process_numbers(start.program.processes)
    for flag, fd in namespaces.items():
        sys.setns(fd, flag)
    assert start.root is not None
    is_rootless = context.kind == "rootless"
    old_root = rootfs.enter(start.root, context.base, mounted, rootless=is_rootless)
    # As long as the old root is there `/..` leads to it.
    rootfs.leave(old_root)


def _supervise(start: Start, context: ClusterContext, channel: int, streams: Sequence[int]) -> int:
    """Run the program to its end; returns this process's exit code.

    In namespaces this process is confined as the program is; without, only the program is.
    """
    sys.set_process_name("pod-init")
    wanted, stdio = start.program, _standard_streams(start.tty, channel, streams)
    if context.kind != "plain":
        program.prepare_process(wanted, context)
    if context.kind == "plain" or start.tty or program.changes_user(wanted):
        pid = _fork_program(wanted, context, stdio, start.tty)
    else:
        pid = program.spawn_program(wanted, stdio)
    sys.close_others({channel})
    if context.kind == "root" and not wanted.privileged:
        sys.limit_capabilities(_CAP_KILL)
    # Raises, and so ends everything, if the shim has died.
    send_report(channel, ChildReport(started=True))
    code = os.waitstatus_to_exitcode(supervise_until_exit(pid, context.owner))
    if context.kind == "plain" or start.share_processes_with:
        descendants.end_all()
    exit_code = code if code >= 0 else 128 - code
    is_full = bool(code) and context.kind != "plain" and rootfs.is_full()
    try_send_report(channel, ChildReport(code=exit_code & 255, signal=max(0, -code), full=is_full))
    return exit_code & 255


def _standard_streams(tty: bool, channel: int, streams: Sequence[int]) -> program.Stdio:
    """Standard streams of the program. The shim gets the controlling end of a terminal."""
    if not tty:
        source = (
            streams[1] if len(streams) > 1 else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        )
        return source, streams[0], streams[0]
    controller, terminal = os.openpty()
    send_report(channel, ChildReport(terminal=True), controller)
    os.close(controller)
    return terminal, terminal, terminal


def _fork_program(
    wanted: Program, context: ClusterContext, stdio: program.Stdio, terminal: bool
) -> int:
    """Fork the program: for one that changes its user or has a terminal."""
    failure_reader, failure_writer = os.pipe2(os.O_CLOEXEC)
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            if context.kind == "plain":
                program.confine(wanted, context)
            program.exec_program(wanted, context, stdio, terminal)
        except BaseException as error:
            code = error.code if isinstance(error, StartError) else CANNOT_START
            failure = ChildReport(error=str(error) or type(error).__name__, code=code)
            os.write(failure_writer, json.dumps(to_raw(failure)).encode())
        finally:
            os._exit(CANNOT_START)
    os.close(failure_writer)
    with os.fdopen(failure_reader, "rb") as reader:
        text = reader.read()
    if text:
        failure = from_raw(ChildReport, json.loads(text))
        raise StartError(failure.error, failure.code or CANNOT_START)
    return pid


def supervise_until_exit(pid: int, owner: int) -> int:
    """Wait for the program, reaping orphans and forwarding signals; returns its wait status.

    All descendants are killed on KILL_ALL, or when the parent is no longer ``owner`` (unless 0).
    """
    ended: int | None = None
    while ended is None:
        number = signal.sigwait(WATCHED_SIGNALS)
        if number == KILL_ALL or (owner and os.getppid() != owner):
            descendants.kill()
        elif number in FORWARDED_SIGNALS:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        ended = _reap(pid)
    return ended


def wait_for_descendants(owner: int) -> None:
    """After the program's end, stay until its descendants have ended, under the same rules."""
    while descendants.has_children():
        if signal.sigwait(WATCHED_SIGNALS) == KILL_ALL or os.getppid() != owner:
            descendants.end_all()


def _reap(wanted: int) -> int | None:
    """Reap ended processes; returns the wait status of ``wanted`` if it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == wanted:
                return status
            if not pid:
                return None
    return None
