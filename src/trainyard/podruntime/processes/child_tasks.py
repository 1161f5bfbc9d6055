"""What the shim asks of the zygote's children, and what they report.

A task travels in a memory file, through the channel of the child that is to do it; reports come
back there, one message each. The shim is trusted, so a task is read as it is; reports are
validated.
"""

from __future__ import annotations

import marshal
import signal
import struct
from typing import Any, NamedTuple

from trainyard.podruntime.protocol import Account, Bind, Program, Root, Start

NOT_EXECUTABLE, NOT_FOUND, CANNOT_START = 126, 127, 128
KILL_ALL = signal.SIGUSR1
"""Tells a child to kill all its descendants. In a process namespace SIGKILL does that."""
FORWARDED_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM})
"""Signals that a container init passes on to the program."""
FORK_REQUEST = struct.Struct("=I")
"""A request to the zygote: clone flags. Attached is the child's end of its channel."""
FORK_INTO_CGROUP = 1
"""A flag: attached, behind the channel, is the control group to fork into."""
FORK_INTO_PROCESS_NAMESPACE = 2
"""A flag: attached, before that, is the process namespace to fork into."""


class ClusterContext(NamedTuple):
    """What all containers of a cluster share.

    ``kind`` is the isolation; ``owner`` the shim's process id where children see it (in plain
    isolation), else 0; ``open_files`` the programs' soft and hard limit.
    """

    base: str
    kind: str
    owner: int
    last_capability: int
    open_files: tuple[int, int]
    user_namespace: int = -1
    """A descriptor of the pod's user namespace, set by the child; -1 where it has none."""


class ExecTask(NamedTuple):
    """A command to run in a container. With ``tty`` its one descriptor receives the terminal."""

    program: Program
    tty: bool


class RelayTask(NamedTuple):
    """``own_addresses``: put the Services' addresses on the loopback interface first."""

    own_addresses: bool


class ChildTask(NamedTuple):
    """One of ``start``, ``command`` and ``relay``.

    Attached are the descriptors that it needs, and behind them those of the namespaces to enter,
    whose kinds are ``namespaces`` (CLONE_NEW… flags).
    """

    context: ClusterContext
    start: Start | None = None
    command: ExecTask | None = None
    relay: RelayTask | None = None
    namespaces: tuple[int, ...] = ()


def pack(task: ChildTask) -> bytes:
    """Pack a task for a child that runs this same code; much quicker than JSON."""
    return marshal.dumps(_plain_tuples(task))


def _plain_tuples(value: Any) -> Any:
    return tuple(map(_plain_tuples, value)) if isinstance(value, tuple) else value


def unpack(data: bytes) -> ChildTask:
    """The task that was packed."""
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
    """How a child goes on. The first message, an empty one, only carries its process id.

    ``full``: the root's layer had no room left when the program failed.
    """

    started: bool = False
    error: str = ""
    code: int | None = None
    signal: int = 0
    full: bool = False
    terminal: bool = False
    """Whether the controlling end of the program's terminal is attached."""


class StartError(Exception):
    """The container cannot be started; ``code`` is recorded as its exit code."""

    def __init__(self, message: str, code: int = CANNOT_START) -> None:
        super().__init__(message)
        self.code = code
