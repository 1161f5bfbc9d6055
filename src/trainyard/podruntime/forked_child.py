"""A child of the shim that the zygote forks, and the zygote itself, as the shim begins them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from trainyard.podruntime.processes.child_channel import Channel
from trainyard.podruntime.processes.child_tasks import END_ALL, Order, Progress


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
