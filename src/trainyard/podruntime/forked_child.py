"""A child of the shim that the zygote forks, and the zygote itself, as the shim begins them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from trainyard.podruntime.processes.child_channel import ChildChannel
from trainyard.podruntime.processes.child_tasks import KILL_ALL, ChildReport, ChildTask


class ForkedChild:
    """A process that the zygote forks for us; what it becomes is told by its subclasses."""

    def __init__(
        self,
        task: ChildTask | None,
        flags: int,
        owned_fds: Iterable[int],
        borrowed_fds: Iterable[int] = (),
    ) -> None:
        """``given`` descriptors are closed when it has them, ``lent`` ones (behind) are not."""
        self.task, self.flags = task, flags
        self.outlives_init = task is not None and task.context.kind == "plain"
        """Its end alone does not end what it has started."""
        self.owned_fds, self.borrowed_fds = list(owned_fds), list(borrowed_fds)
        self.fork_into: list[int] = []
        """What it is to be born in, if anything: a process namespace, a control group; closed as
        what is given."""
        self.channel: ChildChannel | None = None
        self.pid = 0
        """0 until it has told."""
        self.attempts = 0
        self.pending_signal = 0
        self.deadline = 0.0

    def kill(self, number: int) -> None:
        """Send it a signal, if only once it is there."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        else:
            self.pending_signal = number

    def kill_tree(self) -> None:
        """Kill it with everything beneath it."""
        self.kill(KILL_ALL if self.outlives_init else signal.SIGKILL)

    def close_owned(self) -> None:
        for fd in (*self.owned_fds, *self.fork_into):
            os.close(fd)
        self.owned_fds.clear()
        self.fork_into.clear()

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        """It says how it goes on; ``descriptors`` are ours to close."""
        for fd in descriptors:
            os.close(fd)

    def on_invalid_report(self, error: Exception) -> None:
        """Something that cannot be came through its channel, which is closed now."""

    def on_not_started(self, reason: str) -> None:
        """It could not be forked, or did not live to say a word."""

    def on_exit(self, status: int) -> None:
        """It has been reaped with this wait status, all that it told has been read."""
