"""The zygote: a small process from which everything that touches a pod is forked (decision 70).

A fresh interpreter with an empty environment, which never holds anything of a pod or of the
cluster. The shim sends it one end of a channel, and it forks: with CLONE_PARENT, so that the child
is the shim's. The child says who it is through its channel, waits there for its order and becomes a
container's first process, a command in one, or the relay.
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
from trainyard.podruntime.filesystem.base_mounts import Ground, MountPoints
from trainyard.podruntime.network import service_relay
from trainyard.podruntime.processes import child_tasks, container_init, exec_process, seccomp
from trainyard.podruntime.processes.child_channel import (
    encoded,
    receive_descriptors,
    tell,
    tell_anyway,
)
from trainyard.podruntime.processes.child_tasks import (
    BORN_BESIDE,
    BORN_IN_GROUP,
    CANNOT_START,
    FLAGS,
    Command,
    Order,
    Progress,
    Relay,
    StartError,
    Surroundings,
)
from trainyard.podruntime.protocol import Bind, Program, Root, Start


def main() -> NoReturn:
    """The last arguments: the descriptor to serve, and where first processes build their root."""
    control = socket.socket(fileno=int(python.argv[2]))
    control.set_inheritable(False)
    sys.find_arguments()
    sys.set_process_name("pod-zygote")
    sys.limit_capabilities(~0)  # of those that ``keep_capabilities`` made programs inherit
    # Closes memory, descriptors and environment of this and all its children to the pods' root.
    sys.prctl(sys.PR_SET_DUMPABLE, 0)
    nothing = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    os.close(nothing)
    os.chdir("/")
    _warm_up()
    ground = Ground(python.argv[3]) if python.argv[3] else None
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors = receive_descriptors(control, FLAGS.size)
        if not data:
            os._exit(0)
        _fork(control, FLAGS.unpack(data)[0], descriptors, ground)


def _warm_up() -> None:
    """Fill the caches that every child would have to fill anew."""
    program = Program(("",), {}, "", groups=(0,), cgroups=("",), gpus=(0,))
    start = Start("", "", 0, "", program, Root((Bind("", ""),), ("",), work="/"))
    around = Surroundings("", "", 0, 0, (0, 0))
    relay_order = Relay(own_addresses=False)
    child_tasks.unpack(
        child_tasks.pack(Order(around, start, Command(program, tty=False), relay_order, (0,)))
    )
    for told in (Progress(), Progress(started=True), Progress(code=0)):
        encoded(told)
    seccomp.profile()


def _fork(
    control: socket.socket, flags: int, descriptors: list[int], ground: Ground | None
) -> None:
    """A child, in namespaces with what its root is built on where it is to have one."""
    group = descriptors.pop() if flags & BORN_IN_GROUP and len(descriptors) > 1 else -1
    beside = descriptors.pop() if flags & BORN_BESIDE and len(descriptors) > 1 else -1
    if not flags & (BORN_BESIDE | sys.CLONE_NEWPID):
        ground = None
    flags = flags & ~(BORN_IN_GROUP | BORN_BESIDE) | sys.CLONE_PARENT
    try:
        if beside >= 0:
            pid = _clone_beside(descriptors[0], beside, flags, group, ground)
        else:
            pid = _clone_prepared(flags, group, ground)
    except OSError as error:
        if descriptors:
            tell_anyway(
                descriptors[0], Progress(error=limit_errors.explain(error), code=CANNOT_START)
            )
        pid = -1
    if not pid:
        _become_child(control, descriptors, ground)
    for fd in (*descriptors, beside, group):
        if fd >= 0:
            os.close(fd)


def _clone_beside(
    channel: int, namespace: int, flags: int, group: int, ground: Ground | None
) -> int:
    """Fork into another process namespace, by way of a process that enters it for good.

    Without root nobody comes back from there.
    """
    pid = sys.clone(sys.CLONE_PARENT)
    if not pid:
        try:
            sys.setns(namespace, sys.CLONE_NEWPID)
            if ground is not None:
                ground.prepare()
            pid = _clone(flags, group)
        except OSError as error:
            tell_anyway(channel, Progress(error=limit_errors.explain(error), code=CANNOT_START))
            pid = -1
        if pid:
            os._exit(0)
    return pid


def _clone_prepared(flags: int, group: int, ground: Ground | None) -> int:
    if ground is None:
        return _clone(flags, group)
    pid = -1
    try:
        ground.prepare()
        pid = _clone(flags, group)
    finally:
        if pid:
            ground.leave()
    return pid


def _clone(flags: int, group: int) -> int:
    if group >= 0:
        with contextlib.suppress(OSError):  # the kernel is too old, or it is gone: the child joins
            return sys.clone_into(group, flags)
    return sys.clone(flags)


def _become_child(
    control: socket.socket, descriptors: list[int], ground: Ground | None
) -> NoReturn:
    """``ground`` is None for what needs no root of its own."""
    code = CANNOT_START
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, container_init.WATCHED)
        sys.die_with_parent()
        control.close()
        os.dup2(0, 2)  # the shim's log
        (channel,) = descriptors
        sys.set_process_name("pod-spare")
        tell(channel, Progress())  # fails if the shim has died meanwhile
        mounted = None if ground is None else ground.take()
        messages = socket.socket(fileno=channel)
        _, (order_file, *attached) = receive_descriptors(messages, 1)
        messages.detach()
        order = child_tasks.unpack(os.read(order_file, os.fstat(order_file).st_size))
        os.close(order_file)
        code = _carry_out(order, channel, attached, mounted)
    except BaseException as error:
        code = error.code if isinstance(error, StartError) else CANNOT_START
        tell_anyway(channel, Progress(error=limit_errors.explain(error), code=code))
    finally:
        os._exit(code)


def _carry_out(order: Order, channel: int, attached: list[int], mounted: MountPoints | None) -> int:
    """Do what is ordered; returns the exit code for this process."""
    count = len(attached) - len(order.namespaces)
    needed, opened = attached[:count], attached[count:]
    namespaces = dict(zip(order.namespaces, opened, strict=True))
    # Entered last of all, by ``confinement``.
    around = order.around._replace(user_namespace=namespaces.pop(sys.CLONE_NEWUSER, -1))
    if order.start is not None:
        return container_init.run(order.start, around, namespaces, channel, needed, mounted)
    if order.command is not None:
        return exec_process.run(order.command, around, namespaces, channel, needed)
    if order.relay is not None:
        (configuration,) = needed
        service_relay.run(configuration, order.relay.own_addresses, channel)
    raise StartError("nothing is ordered")
