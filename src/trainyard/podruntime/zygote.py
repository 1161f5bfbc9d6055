"""The zygote: the process from which everything that touches a pod is forked (decision 70).

It is a fresh interpreter with an empty environment and must never hold anything of a pod or of the
cluster: its children inherit its memory. For each request the shim sends one end of a channel. The
zygote forks with CLONE_PARENT, so the child becomes the shim's. The child reports its process id
through the channel, waits there for its task, and becomes a container init, an exec session or the
service relay.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys as python
from typing import NoReturn

from trainyard.podruntime import limit_errors
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.filesystem.base_mounts import BaseMounts, MountPoints
from trainyard.podruntime.network import service_relay
from trainyard.podruntime.processes import child_tasks, container_init, exec_process, seccomp
from trainyard.podruntime.processes.child_channel import (
    encode_report,
    receive_descriptors,
    send_report,
    try_send_report,
)
from trainyard.podruntime.processes.child_tasks import (
    CANNOT_START,
    FORK_INTO_CGROUP,
    FORK_INTO_PROCESS_NAMESPACE,
    FORK_REQUEST,
    ChildReport,
    ChildTask,
    ClusterContext,
    ExecTask,
    RelayTask,
    StartError,
)
from trainyard.podruntime.protocol import Bind, Program, Root, Start


def main() -> NoReturn:
    """Serve fork requests. Arguments: the descriptor to serve, and where container inits build
    roots (or "")."""
    control = socket.socket(fileno=int(python.argv[2]))
    control.set_inheritable(False)
    sys.find_arguments()
    sys.set_process_name("pod-zygote")
    sys.limit_capabilities(~0)  # those that ``keep_capabilities`` made heritable
    # Pods' root must not see memory, descriptors or environment of this process and its children.
    sys.prctl(sys.PR_SET_DUMPABLE, 0)
    nothing = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    os.close(nothing)
    os.chdir("/")
    _warm_up()
    base_mounts = BaseMounts(python.argv[3]) if python.argv[3] else None
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors = receive_descriptors(control, FORK_REQUEST.size)
        if not data:
            os._exit(0)
        _fork(control, FORK_REQUEST.unpack(data)[0], descriptors, base_mounts)


def _warm_up() -> None:
    """Fill caches that every child would otherwise have to fill for itself."""
    program = Program(("",), {}, "", groups=(0,), cgroups=("",), gpus=(0,))
    start = Start("", "", 0, "", program, Root((Bind("", ""),), ("",), work="/"))
    context = ClusterContext("", "", 0, 0, (0, 0))
    relay_task = RelayTask(own_addresses=False)
    child_tasks.unpack(
        child_tasks.pack(ChildTask(context, start, ExecTask(program, tty=False), relay_task, (0,)))
    )
    for report in (ChildReport(), ChildReport(started=True), ChildReport(code=0)):
        encode_report(report)
    seccomp.profile()


def _fork(
    control: socket.socket, flags: int, descriptors: list[int], base_mounts: BaseMounts | None
) -> None:
    """Fork a child; where a task needs a root of its own, in a mount namespace prepared for it."""
    cgroup = descriptors.pop() if flags & FORK_INTO_CGROUP and len(descriptors) > 1 else -1
    process_namespace = (
        descriptors.pop() if flags & FORK_INTO_PROCESS_NAMESPACE and len(descriptors) > 1 else -1
    )
    if not flags & (FORK_INTO_PROCESS_NAMESPACE | sys.CLONE_NEWPID):
        base_mounts = None
    flags = flags & ~(FORK_INTO_CGROUP | FORK_INTO_PROCESS_NAMESPACE) | sys.CLONE_PARENT
    try:
        if process_namespace >= 0:
            pid = _clone_into_process_namespace(
                descriptors[0], process_namespace, flags, cgroup, base_mounts
            )
        else:
            pid = _clone_prepared(flags, cgroup, base_mounts)
    except OSError as error:
        if descriptors:
            try_send_report(
                descriptors[0], ChildReport(error=limit_errors.explain(error), code=CANNOT_START)
            )
        pid = -1
    if not pid:
        _become_child(control, descriptors, base_mounts)
    for fd in (*descriptors, process_namespace, cgroup):
        if fd >= 0:
            os.close(fd)


def _clone_into_process_namespace(
    channel: int, namespace: int, flags: int, cgroup: int, base_mounts: BaseMounts | None
) -> int:
    """Fork into an existing process namespace, through a helper that enters it and exits.

    Without root a process cannot come back from another namespace.
    """
    pid = sys.clone(sys.CLONE_PARENT)
    if not pid:
        try:
            sys.setns(namespace, sys.CLONE_NEWPID)
            if base_mounts is not None:
                base_mounts.prepare_for_child()
            pid = _clone(flags, cgroup)
        except OSError as error:
            try_send_report(
                channel, ChildReport(error=limit_errors.explain(error), code=CANNOT_START)
            )
            pid = -1
        if pid:
            os._exit(0)
    return pid


def _clone_prepared(flags: int, cgroup: int, base_mounts: BaseMounts | None) -> int:
    if base_mounts is None:
        return _clone(flags, cgroup)
    pid = -1
    try:
        base_mounts.prepare_for_child()
        pid = _clone(flags, cgroup)
    finally:
        if pid:
            base_mounts.return_home()
    return pid


def _clone(flags: int, cgroup: int) -> int:
    if cgroup >= 0:
        # With an old kernel, or where the group is gone, the child joins it later, or does without.
        with contextlib.suppress(OSError):
            return sys.clone_into(cgroup, flags)
    return sys.clone(flags)


def _become_child(
    control: socket.socket, descriptors: list[int], base_mounts: BaseMounts | None
) -> NoReturn:
    """Report the process id, wait for the task, do it, and exit. ``base_mounts``: None without a
    root."""
    code = CANNOT_START
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, container_init.WATCHED_SIGNALS)
        sys.die_with_parent()
        control.close()
        os.dup2(0, 2)  # shim.log
        (channel,) = descriptors
        sys.set_process_name("pod-spare")
        send_report(channel, ChildReport())  # fails if the shim has died
        mounted = None if base_mounts is None else base_mounts.finish_in_child()
        messages = socket.socket(fileno=channel)
        _, (task_file, *attached) = receive_descriptors(messages, 1)
        messages.detach()
        task = child_tasks.unpack(os.read(task_file, os.fstat(task_file).st_size))
        os.close(task_file)
        code = _carry_out(task, channel, attached, mounted)
    except BaseException as error:
        code = error.code if isinstance(error, StartError) else CANNOT_START
        try_send_report(channel, ChildReport(error=limit_errors.explain(error), code=code))
    finally:
        os._exit(code)


def _carry_out(
    task: ChildTask, channel: int, attached: list[int], mounted: MountPoints | None
) -> int:
    """Do the task; returns this process's exit code."""
    count = len(attached) - len(task.namespaces)
    needed, opened = attached[:count], attached[count:]
    namespaces = dict(zip(task.namespaces, opened, strict=True))
    # ``confinement`` enters the user namespace, as the last step.
    context = task.context._replace(user_namespace=namespaces.pop(sys.CLONE_NEWUSER, -1))
    if task.start is not None:
        return container_init.run(task.start, context, namespaces, channel, needed, mounted)
    if task.command is not None:
        return exec_process.run(task.command, context, namespaces, channel, needed)
    if task.relay is not None:
        (configuration,) = needed
        service_relay.run(configuration, task.relay.own_addresses, channel)
    raise StartError("nothing is ordered")
