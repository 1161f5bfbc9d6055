"""A container's first process, from ``clone`` to its end: isolates itself, then supervises.

The shim learns about it through a status pipe: a ``Progress`` with an ``error``, or ``started``,
and at the end the exit code. It forks the program, reaps orphans and passes signals on.

In namespaces it is the container's process 1, and its end ends all; without, it is a sub-reaper,
so that processes which leave their session still are its descendants, and it kills them itself:
when the program ends, when it is told to (SIGUSR1) and when the shim dies (SIGTERM from the
kernel). Either way the program is an ordinary process: a signal without a handler ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal

from trainyard.shim import program, rootfs
from trainyard.shim import syscalls as sys
from trainyard.shim.protocol import Program, Progress, Start, from_raw

END_ALL = signal.SIGUSR1
_PASSED_ON = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM})
_CAP_KILL = 1 << 5


def spawn(start: Start, around: program.Surroundings, status: int, output: int) -> int:
    """Start a container; returns the process id of its supervisor. Nothing raises past here."""
    # Decision 45.
    plain = around.kind == "plain"
    pid = sys.clone(0 if plain else sys.CLONE_NEWPID)
    if pid:
        return pid
    code = program.CANNOT_START
    try:
        signal.set_wakeup_fd(-1)
        if plain:
            sys.die_with_parent(signal.SIGTERM)
            sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
        else:
            sys.die_with_parent()
            _isolate(start, around)
        code = _supervise(start.program, around, status, output)
    except BaseException as error:
        program.report(status, error)
    finally:
        os._exit(code)


def _isolate(start: Start, around: program.Surroundings) -> None:
    sys.join_cgroups(start.program.cgroups)
    for flag, fd in around.namespaces.items():
        sys.setns(fd, flag)
    sys.unshare(sys.CLONE_NEWNS)
    assert start.root is not None
    old_root = rootfs.enter(start.root, around.base, rootless=around.kind == "rootless")
    # The kernel may take a moment, but as long as the old root is there `/..` leads to it.
    rootfs.leave(old_root)


def _supervise(wanted: Program, around: program.Surroundings, status: int, output: int) -> int:
    """Run the program ``wanted`` to its end; returns the exit code for this process.

    In namespaces this process is confined as the program is; without, only the program.
    """
    watched = {signal.SIGCHLD, END_ALL, *_PASSED_ON}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    sys.set_process_name("pod-init")
    if around.kind != "plain":
        program.prepare(wanted, around)
    if around.kind == "plain" or program.changes_user(wanted):
        pid = _fork_program(wanted, around, output)
    else:
        pid = program.spawn_program(wanted, output)
    sys.close_others({status})
    if around.kind == "root" and not wanted.privileged:
        sys.limit_capabilities(_CAP_KILL)
    # Fails, and so ends all, if the shim has died meanwhile.
    program.tell(status, Progress(started=True))
    code = os.waitstatus_to_exitcode(_watch(pid, around.kind == "plain", watched))
    told = code if code >= 0 else 128 - code
    with contextlib.suppress(BrokenPipeError):
        program.tell(status, Progress(code=told, signal=max(0, -code)))
    return told & 255


def _fork_program(wanted: Program, around: program.Surroundings, output: int) -> int:
    """Start the program from a copy of this process, which can change its user."""
    failure_reader, failure_writer = os.pipe2(os.O_CLOEXEC)
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            if around.kind == "plain":
                around.confine(wanted)
            program.execute(wanted, around, output)
        except BaseException as error:
            program.report(failure_writer, error)
    os.close(failure_writer)
    with os.fdopen(failure_reader, "rb") as reader:
        failure = reader.read()
    if failure:
        record = from_raw(Progress, json.loads(failure))
        raise program.StartError(record.error, record.code or program.CANNOT_START)
    return pid


def _watch(pid: int, plain: bool, watched: set[signal.Signals]) -> int:
    """Wait for the program's end; returns its wait status."""
    owner = os.getppid()
    ended: int | None = None
    while ended is None:
        number = signal.sigwait(watched)
        orphaned = plain and os.getppid() != owner
        if number == END_ALL or orphaned:
            _kill_descendants()
        elif number in _PASSED_ON:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        ended = _reap(pid)
    if plain:
        _end_rest()
    return ended


def _kill_descendants() -> None:
    for pid in _descendants(os.getpid()):
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


def _reap(wanted: int) -> int | None:
    """Reap what has ended; returns the wait status of ``wanted`` if it is among it."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == wanted:
                return status
            if not pid:
                return None
    return None


def _descendants(ancestor: int) -> list[int]:
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
