"""What the shim knows of a process that the zygote forks for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from trainyard.podruntime.processes.child_channel import ChildChannel
from trainyard.podruntime.processes.child_tasks import KILL_ALL, ChildReport, ChildTask


class ForkedChild:
    """A process that the zygote forks for the shim; subclasses react to what it reports."""

    def __init__(
        self,
        task: ChildTask | None,
        flags: int,
        owned_fds: Iterable[int],
        borrowed_fds: Iterable[int] = (),
    ) -> None:
        """``owned_fds`` are closed once the child has them; ``borrowed_fds``, sent behind them, are
        not."""
        self.task, self.flags = task, flags
        self.leaves_descendants = task is not None and task.context.kind == "plain"
        """Whether what it has started survives its own end: without namespaces it does."""
        self.owned_fds, self.borrowed_fds = list(owned_fds), list(borrowed_fds)
        self.fork_into: list[int] = []
        """Descriptors it is forked into, if any: a process namespace, a control group. Owned as
        well."""
        self.channel: ChildChannel | None = None
        self.pid = 0
        """0 until it has reported it."""
        self.attempts = 0
        self.pending_signal = 0
        self.deadline = 0.0

    def kill(self, number: int) -> None:
        """Send it a signal, at once or as soon as it exists."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        else:
            self.pending_signal = number

    def kill_tree(self) -> None:
        """Kill it with all its descendants."""
        self.kill(KILL_ALL if self.leaves_descendants else signal.SIGKILL)

    def close_owned(self) -> None:
        for fd in (*self.owned_fds, *self.fork_into):
            os.close(fd)
        self.owned_fds.clear()
        self.fork_into.clear()

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        """It sent a report; ``descriptors`` are ours to close."""
        for fd in descriptors:
            os.close(fd)

    def on_invalid_report(self, error: Exception) -> None:
        """An invalid message came through its channel, which is closed now."""

    def on_not_started(self, reason: str) -> None:
        """It could not be forked, or died before its first message."""

    def on_exit(self, status: int) -> None:
        """It was reaped with this wait status; all its reports have been handled."""
