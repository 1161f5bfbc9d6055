"""A command in a running container (``exec``).

The outer process enters the container's namespaces and forks the command, since only its children
are in the process namespace. It reports how the command ended. Without namespaces it stays until
the command's descendants have ended too.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.processes import container_init, program
from trainyard.podruntime.processes.child_channel import try_send_report
from trainyard.podruntime.processes.child_tasks import (
    ChildReport,
    ClusterContext,
    ExecTask,
    StartError,
)


def run(
    task: ExecTask,
    context: ClusterContext,
    namespaces: Mapping[int, int],
    channel: int,
    attached: Sequence[int],
) -> int:
    """Be the outer process to its end; returns the command's exit code.

    ``namespaces``: the container's, as descriptors by kind. ``attached``: standard streams, or the
    one socket that receives the terminal.
    """
    sys.join_cgroups(task.program.cgroups)
    for flag, fd in namespaces.items():
        sys.setns(fd, flag)
    if context.kind == "plain":
        container_init.become_subreaper()
    stdio = _terminal(attached[0]) if task.tty else (attached[0], attached[1], attached[2])
    pid = _fork(task, context, stdio)
    sys.close_others({channel})
    if context.kind != "plain":
        status = os.waitpid(pid, 0)[1]
    else:
        status = container_init.supervise_until_exit(pid, context.owner)
    code = os.waitstatus_to_exitcode(status)
    code = code if code >= 0 else 128 - code
    try_send_report(channel, ChildReport(code=code))
    if context.kind == "plain":
        container_init.wait_for_descendants(context.owner)
    return code


def _terminal(channel: int) -> program.Stdio:
    """Open a terminal inside the container and send its controlling end to the agent."""
    controller, terminal = os.openpty()
    with socket.socket(fileno=channel) as connection:
        socket.send_fds(connection, [b"t"], [controller])
    os.close(controller)
    return terminal, terminal, terminal


def _fork(task: ExecTask, context: ClusterContext, stdio: program.Stdio) -> int:
    pid = sys.clone(0)
    if not pid:
        try:
            sys.die_with_parent()
            program.confine(task.program, context)
            program.exec_program(task.program, context, stdio, task.tty)
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
            os._exit(error.code if isinstance(error, StartError) else 126)
    return pid
