"""A command run in a container that is there already: ``exec``.

Two processes: the outer one enters the container's namespaces (its children, not itself, are in
the process namespace), forks the command and passes on how that ended.
"""

from __future__ import annotations

import os
import signal
import socket

from trainyard.shim import program, wire
from trainyard.shim import syscalls as sys
from trainyard.shim.protocol import Program

_ALL = sys.CLONE_NEWNS | sys.CLONE_NEWPID | sys.CLONE_NEWNET | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC


def spawn(
    command: Program,
    around: program.Surroundings,
    init: int,
    attached: list[int],
    tty: bool,
) -> int:
    """Start ``command`` beside process ``init``; returns the outer process's id."""
    pid = sys.clone(0)
    if pid:
        return pid
    code = program.CANNOT_START
    try:
        sys.die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.close_others(set(attached))
        sys.join_cgroups(command.cgroups)
        if around.kind != "plain":
            _enter(init)
        stdio = _terminal(attached[0]) if tty else (attached[0], attached[1], attached[2])
        code = _run(command, around, stdio, tty)
    finally:
        os._exit(code)


def _enter(init: int) -> None:
    fd = os.pidfd_open(init)
    sys.setns(fd, _ALL)
    os.close(fd)


def _terminal(channel: int) -> tuple[int, int, int]:
    """Make a terminal inside the container and hand its controlling end to the agent."""
    controller, terminal = os.openpty()
    with socket.socket(fileno=channel) as connection:
        wire.send_descriptors(connection, b"t", [controller])
    os.close(controller)
    return terminal, terminal, terminal


def _run(
    command: Program,
    around: program.Surroundings,
    stdio: tuple[int, int, int],
    terminal: bool,
) -> int:
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            program.become(command, around, stdio, terminal)
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
            os._exit(error.code if isinstance(error, program.StartError) else 126)
    for fd in set(stdio):
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
