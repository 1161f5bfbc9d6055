"""What the shim orders from the zygote's children, and what they tell it (see ``zygote``).

An order travels in a memory file, through the channel of the child that is to carry it out; what
the child tells comes back there, one message each. The shim is trusted, so an order is read as it
is; what a child tells is looked at.
"""

from __future__ import annotations

import marshal
import signal
import struct
from typing import Any, NamedTuple

from trainyard.podruntime.protocol import Account, Bind, Program, Root, Start

NOT_EXECUTABLE, NOT_FOUND, CANNOT_START = 126, 127, 128
KILL_ALL = signal.SIGUSR1
"""Has a child end everything beneath it; in a process namespace of its own SIGKILL does."""
FORWARDED_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM})
"""What a first process hands on to the program."""
FORK_FLAGS = struct.Struct("=I")
"""A request to the zygote: the namespaces to make. Attached is the child's end of its channel."""
FORK_INTO_CGROUP = 1
"""Of the flags: attached behind the channel is the control group in which the child is born."""
FORK_INTO_PROCESS_NAMESPACE = 2
"""Of the flags: attached, before that, is the process namespace in which the child is born."""


class ClusterContext(NamedTuple):
    """What every container of a cluster has in common.

    ``kind`` is the isolation, ``owner`` the shim's process id where children see it (in plain
    isolation), else 0, ``open_files`` the limits of programs.
    """

    base: str
    kind: str
    owner: int
    last_capability: int
    open_files: tuple[int, int]
    user_namespace: int = -1
    """The pod's, a descriptor that the child sets; -1 where it has none."""


class ExecTask(NamedTuple):
    """A program to run beside a container's; ``tty``: the one descriptor gets a terminal."""

    program: Program
    tty: bool


class RelayTask(NamedTuple):
    """``own_addresses``: Services' addresses have to be put on the loopback interface first."""

    own_addresses: bool


class ChildTask(NamedTuple):
    """One of ``start``, ``command`` and ``relay``.

    Attached are the descriptors that it needs, and behind them the namespaces to enter, of the
    kinds ``namespaces`` (CLONE_NEW… flags).
    """

    context: ClusterContext
    start: Start | None = None
    command: ExecTask | None = None
    relay: RelayTask | None = None
    namespaces: tuple[int, ...] = ()


def pack(task: ChildTask) -> bytes:
    """For a child of a zygote that has this code, in a tenth of the time that JSON takes."""
    return marshal.dumps(_plain_tuples(task))


def _plain_tuples(value: Any) -> Any:
    return tuple(map(_plain_tuples, value)) if isinstance(value, tuple) else value


def unpack(data: bytes) -> ChildTask:
    """What was packed."""
    context, start, command, relay, namespaces = marshal.loads(data)
    return ChildTask(
        ClusterContext(*context),
        start and _start(Start(*start)),
        command and ExecTask(Program(*command[0]), *command[1:]),
        relay and RelayTask(*relay),
        namespaces,
    )


def _start(fields: Start) -> Start:
    root = fields.root and Root(*fields.root)
    if root:
        binds = tuple(Bind(*bind) for bind in root.binds)
        account = root.account and Account(*root.account)
        root = root._replace(binds=binds, account=account)
    return fields._replace(program=Program(*fields.program), root=root)


class ChildReport(NamedTuple):
    """How a child goes on; the first message, an empty one, only tells that it lives.

    ``full``: there was no room left outside of volumes when the program failed.
    """

    started: bool = False
    error: str = ""
    code: int | None = None
    signal: int = 0
    full: bool = False
    terminal: bool = False
    """The controlling end of the program's terminal is attached."""


class StartError(Exception):
    """The container cannot be started; ``code`` is what it is recorded to have exited with."""

    def __init__(self, message: str, code: int = CANNOT_START) -> None:
        super().__init__(message)
        self.code = code
