"""A child of the shim that the zygote forks, and the zygote itself, as the shim begins them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys as python
from collections.abc import Iterable

from trainyard.podruntime import loop, orders
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.channel import Channel
from trainyard.podruntime.orders import END_ALL, Order, Progress
from trainyard.podruntime.protocol import Raw

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from trainyard.podruntime import zygote; zygote.main()"
)
# The caller's environment, folder and site packages have no say, nor a place in its memory.
_SWITCHES = ("-I", "-S", "-B", "-X", "utf8", "-c", _BOOT)


class Child:
    """A process that the zygote forks for us; what it becomes is told by its subclasses."""

    def __init__(
        self, order: Order | None, flags: int, given: Iterable[int], lent: Iterable[int] = ()
    ) -> None:
        """``given`` descriptors are closed when it has them, ``lent`` ones (behind) are not."""
        self.order, self.flags = order, flags
        self.has_company = order is not None and order.around.kind == "plain"
        """Its end alone does not end what it has started."""
        self.given, self.lent = list(given), list(lent)
        self.born_in: list[int] = []
        """What it is to be born in, if anything: a process namespace, a control group; closed as
        what is given."""
        self.channel: Channel | None = None
        self.pid = 0
        """0 until it has told."""
        self.attempts = 0
        self.wanted_signal = 0
        self.deadline = 0.0

    def kill(self, number: int) -> None:
        """Send it a signal, if only once it is there."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        else:
            self.wanted_signal = number

    def end(self) -> None:
        """Kill it with everything beneath it."""
        self.kill(END_ALL if self.has_company else signal.SIGKILL)

    def close_given(self) -> None:
        for fd in (*self.given, *self.born_in):
            os.close(fd)
        self.given.clear()
        self.born_in.clear()

    def told(self, progress: Progress, descriptors: list[int]) -> None:
        """It says how it goes on; ``descriptors`` are ours to close."""
        for fd in descriptors:
            os.close(fd)

    def junk(self, error: Exception) -> None:
        """Something that cannot be came through its channel, which is closed now."""

    def refused(self, reason: str) -> None:
        """It could not be forked, or did not live to say a word."""

    def ended(self, status: int) -> None:
        """It has been reaped with this wait status, all that it told has been read."""


def spawn_zygote(base: str) -> tuple[int, socket.socket]:
    """Start a zygote; returns its process id and the socket that takes requests.

    It is a child of this process, and dies with it. ``base`` as in ``Surroundings``, "" where pods
    have no root of their own.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.path.abspath(__file__)
    for _ in ("child.py", "podruntime", "trainyard"):
        folder = os.path.dirname(folder)
    argv = [python.executable, *_SWITCHES, folder, str(theirs.fileno()), base]
    with theirs:
        pid = sys.clone(0)
        if pid:
            return pid, ours
        try:
            sys.die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.close_others({theirs.fileno()})
            theirs.set_inheritable(True)
            sys.keep_capabilities()
            os.execve(python.executable, argv, {})
        except BaseException as error:
            loop.log(f"cannot run {python.executable}: {error}")
        finally:
            os._exit(1)


def give_order(channel: Channel, order: Order, child: Child) -> None:
    """Send a child its order and all it needs; it reads that when it is there."""
    fd = _file(orders.pack(order))
    try:
        channel.send([fd, *child.given, *child.lent])
    finally:
        os.close(fd)


def in_memory(message: Raw) -> int:
    """A memory file with the message, to be read from its beginning."""
    return _file(json.dumps(message, separators=(",", ":")).encode())


def _file(data: bytes) -> int:
    fd = os.memfd_create("message", os.MFD_CLOEXEC)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
