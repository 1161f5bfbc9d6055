"""The shim's side of the zygote: children from request to reaping (decision 70).

A child is known by its channel until its first message reports its process id. If the channel ends
before any message there is no such child, and the fork is requested again, from a new zygote where
the old one has died. Some children are forked in advance and wait for a task.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from trainyard.podruntime import event_loop, limit_errors
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.forked_child import ForkedChild
from trainyard.podruntime.processes import child_tasks, descendants
from trainyard.podruntime.processes.child_channel import ChildChannel, ReceivedReport, memory_file
from trainyard.podruntime.processes.child_tasks import FORK_REQUEST, ChildReport, ChildTask
from trainyard.podruntime.source_copy import SourceCopy

_AT_ONCE = 8
# For one child, and for zygotes in a row that have forked nothing.
_ATTEMPTS = 10
_LIFE_SIGN_SECONDS = 30.0
_DELAY_SECONDS = 1.0
_LAST_MESSAGES = 16


class _SpareProcess(ForkedChild):
    """A child without a task yet; ``on_failed()`` is called when none can be had."""

    def __init__(self, flags: int, on_failed: Callable[[], None]) -> None:
        super().__init__(None, flags, ())
        self._on_failed = on_failed

    def on_not_started(self, reason: str) -> None:
        self._on_failed()

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        super().on_report(report, descriptors)
        if report.error:
            self._on_failed()


class ZygoteClient:
    """Requests forks, and follows the children until they are reaped.

    ``kills_orphans``: adopt and kill what a child that was killed has left behind.
    """

    def __init__(
        self,
        loop: event_loop.EventLoop,
        sources: SourceCopy,
        spare_flags: int,
        base: str,
        *,
        kills_orphans: bool,
    ) -> None:
        """``sources``: what zygotes are started from; ``spare_flags``: namespaces of children
        forked in advance; ``base`` as in ``ClusterContext``."""
        self._loop, self._sources, self._base = loop, sources, base
        self._spare_flags, self._can_spare = spare_flags, True
        self._spares: deque[ForkedChild] = deque()
        self._kills_orphans = kills_orphans
        self._may_have_orphans = False
        self._queue: deque[ForkedChild] = deque()
        self._forking: list[ForkedChild] = []
        self._by_pid: dict[int, ForkedChild] = {}
        self._zygote = 0
        self._control: socket.socket | None = None
        self._spawned_at = 0.0
        self._failures = 0
        self._closed = False
        self._spawn()

    # -- the zygote -------------------------------------------------------------------------

    def _spawn(self) -> None:
        self._spawned_at = time.monotonic()
        try:
            self._zygote, self._control = _spawn_zygote(self._sources, self._base)
        except OSError as error:
            self._zygote, self._control = 0, None
            self._count_failure(limit_errors.explain(error))
            return
        self._loop.register(
            self._control.fileno(), lambda _: self._on_zygote_exit(), self._on_control_failed
        )

    def _on_control_failed(self, _: Exception) -> None:
        self._on_zygote_exit()

    def _on_zygote_exit(self) -> None:
        """Replace the zygote, which has died: it never sends anything itself."""
        if self._control is None:
            return
        self._loop.unregister(self._control.fileno())
        self._control.close()
        self._control = None
        if self._zygote:
            os.kill(self._zygote, signal.SIGKILL)
        if not self._closed:
            event_loop.log("the zygote has died")
            self._count_failure(
                "the process that starts containers dies again and again: see shim.log"
            )

    def _count_failure(self, reason: str) -> None:
        if time.monotonic() - self._spawned_at > _LIFE_SIGN_SECONDS:
            self._failures = 0
        self._failures += 1
        if self._failures >= _ATTEMPTS:
            waiting, self._queue = self._queue, deque()
            for child in waiting:
                self._give_up(child, reason)

    # -- from the request to the first message -------------------------------------------------

    def start(self, child: ForkedChild) -> None:
        """Request a fork. Never raises: the child's ``on_…`` methods report what becomes of it."""
        self._queue.append(child)
        self._send_queued()

    def _send_queued(self) -> None:
        if self._control is None and time.monotonic() >= self._spawned_at + _DELAY_SECONDS:
            self._spawn()
        while self._queue and self._control is not None and len(self._forking) < _AT_ONCE:
            child = self._queue.popleft()
            event_loop.run_catching(
                partial(self._send, child), partial(self._on_send_failed, child)
            )

    def _send(self, child: ForkedChild) -> None:
        if child.pending_signal:
            self._give_up(child, "it was ended before it was there")
            return
        if child.task is not None and any(
            self._hand_over_spare(s, child) for s in self._usable_spares(child)
        ):
            return
        assert self._control is not None
        child.attempts += 1
        child.deadline = time.monotonic() + _LIFE_SIGN_SECONDS
        channel = child.channel = ChildChannel()
        if child.task is not None:
            _send_task(channel, child.task, child)
        try:
            socket.send_fds(
                self._control, [FORK_REQUEST.pack(child.flags)], [channel.theirs, *child.fork_into]
            )
        except (BrokenPipeError, ConnectionResetError):
            pass  # the zygote's death is noticed separately, and the fork requested again
        finally:
            channel.close_theirs()
        self._forking.append(child)
        self._watch(child, channel)

    def _watch(self, child: ForkedChild, channel: ChildChannel) -> None:
        self._loop.register(
            channel.fileno(), lambda _: self._read(child), partial(self._on_invalid_report, child)
        )

    def _on_send_failed(self, child: ForkedChild, error: Exception) -> None:
        self._give_up(child, limit_errors.explain(error))

    def _give_up(self, child: ForkedChild, reason: str) -> None:
        self._forget_channel(child)
        child.on_not_started(reason)
        child.close_owned()

    # -- its channel ----------------------------------------------------------------------------

    def _read(self, child: ForkedChild) -> None:
        """Handle one message, if there is one."""
        if child.channel is None:
            return
        try:
            message = child.channel.receive()
        except BlockingIOError:
            return
        if message is not None:
            self._on_message(child, message)
            return
        self._forget_channel(child)
        if not child.pid:
            self._fork_again(child)

    def _read_remaining(self, child: ForkedChild) -> None:
        """Handle what is left to read, up to a limit."""
        for _ in range(_LAST_MESSAGES):
            event_loop.run_catching(
                partial(self._read, child), partial(self._on_invalid_report, child)
            )

    def _on_message(self, child: ForkedChild, message: ReceivedReport) -> None:
        sender, report, descriptors = message
        if not child.pid and report.error:  # the zygote reports that it could not fork
            self._forking.remove(child)
            self._give_up(child, report.error)
        elif not child.pid:
            self._on_forked(child, sender)
        elif sender != child.pid:
            for fd in descriptors:
                os.close(fd)
            raise PermissionError(f"process {sender} writes into the channel of {child.pid}")
        if child.pid and report != ChildReport():
            child.on_report(report, descriptors)

    def _on_forked(self, child: ForkedChild, pid: int) -> None:
        self._forking.remove(child)
        self._failures, self._can_spare = 0, True
        child.pid = pid
        self._by_pid[pid] = child
        child.close_owned()
        if child.pending_signal:
            child.kill(child.pending_signal)
        elif isinstance(child, _SpareProcess):
            self._spares.append(child)
        self._send_queued()

    def _fork_again(self, child: ForkedChild) -> None:
        self._forking.remove(child)
        if child.attempts >= _ATTEMPTS:
            self._give_up(
                child, f"its first process died before it could say a word, {_ATTEMPTS} times"
            )
        else:
            self._queue.appendleft(child)
        self._send_queued()

    def _on_invalid_report(self, child: ForkedChild, error: Exception) -> None:
        self._forget_channel(child)
        if child in self._forking:
            self._forking.remove(child)
            self._give_up(child, f"{error}")
        else:
            child.on_invalid_report(error)

    def _forget_channel(self, child: ForkedChild) -> None:
        if child.channel is not None:
            self._loop.unregister(child.channel.fileno())
            child.channel.close()
            child.channel = None

    # -- spare processes --------------------------------------------------------------------------

    def add_spare(self, most: int) -> bool:
        """Fork a child in advance, unless ``most`` wait already; False where nothing is to do."""
        if self._control is None or self._closed or not self._can_spare:
            return False
        if self._queue or self._forking:
            return True
        if len(self._spares) >= most:
            return False
        self.start(_SpareProcess(self._spare_flags, self._stop_making_spares))
        return True

    def _stop_making_spares(self) -> None:
        self._can_spare = False  # the next container reports what is wrong

    def _usable_spares(self, child: ForkedChild) -> Iterator[ForkedChild]:
        while self._spares and self._spare_flags == child.flags:
            yield self._spares.popleft()

    def _hand_over_spare(self, spare: ForkedChild, child: ForkedChild) -> bool:
        """Give the task of ``child`` to the process of ``spare``; False if that has died."""
        channel = spare.channel
        if channel is None or child.task is None:
            return False
        try:
            _send_task(channel, child.task, child)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self._loop.unregister(channel.fileno())
        spare.channel, child.channel = None, channel
        child.pid = spare.pid
        self._by_pid[child.pid] = child
        child.close_owned()
        self._watch(child, channel)
        return True

    # -- the end ----------------------------------------------------------------------------------

    def reap(self) -> None:
        """Reap all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == self._zygote:
                self._zygote = 0
                self._on_zygote_exit()
                continue
            if pid not in self._by_pid:  # its first message may not have been read yet
                for child in list(self._forking):
                    self._read_remaining(child)
            if (ended := self._by_pid.pop(pid, None)) is not None:
                if ended in self._spares:
                    self._spares.remove(ended)
                self._read_remaining(ended)
                self._forget_channel(ended)
                event_loop.run_catching(partial(ended.on_exit, status), ended.on_invalid_report)
        self._may_have_orphans = self._kills_orphans  # orphans appear when their parents die

    def tick(self) -> None:
        """Retry and time out what is due; the loop calls it regularly."""
        now = time.monotonic()
        if late := [child for child in self._forking if child.deadline <= now]:
            event_loop.log("the zygote does not answer")
            self._on_zygote_exit()
            for child in late:
                self._forget_channel(child)
                self._fork_again(child)
        if not self._closed:
            self._send_queued()
        # A child being forked could be mistaken for an orphan.
        if self._may_have_orphans and not self._forking:
            self._may_have_orphans = False
            self._kill_orphans()

    @property
    def is_idle(self) -> bool:
        """Whether no child runs and none is being forked."""
        return not (self._queue or self._forking or self._by_pid)

    def close(self) -> None:
        """Refuse further requests, and kill all children."""
        self._closed = True
        waiting, self._queue = self._queue, deque()
        for child in waiting:
            self._give_up(child, "the node ends")
        for child in (*self._forking, *self._by_pid.values()):
            child.kill_tree()

    def end_zygote(self) -> None:
        """Kill the zygote, and reap it."""
        self._closed = True
        if self._zygote:
            os.kill(self._zygote, signal.SIGKILL)
            os.waitpid(self._zygote, 0)
            self._zygote = 0

    def _kill_orphans(self) -> None:
        """Kill orphans of children that were killed; their own children follow."""
        for pid in descendants.children():
            if pid != self._zygote and pid not in self._by_pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _spawn_zygote(sources: SourceCopy, base: str) -> tuple[int, socket.socket]:
    """Start a zygote, which dies with this process; returns its process id and its request socket.

    ``base`` as in ``ClusterContext``, "" where pods have no root of their own.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    module = "trainyard.podruntime.zygote"
    argv, passed = sources.command(module, str(theirs.fileno()), base)
    passed.add(theirs.fileno())
    with theirs:
        pid = sys.clone(0)
        if pid:
            return pid, ours
        try:
            sys.die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.close_others(passed)
            for fd in passed:
                os.set_inheritable(fd, True)
            sys.keep_capabilities()
            os.execve(argv[0], argv, {})
        except BaseException as error:
            event_loop.log(f"cannot run {argv[0]}: {error}")
        finally:
            os._exit(1)


def _send_task(channel: ChildChannel, task: ChildTask, child: ForkedChild) -> None:
    """Send a child its task with all descriptors. It reads them once it runs."""
    fd = memory_file(child_tasks.pack(task))
    try:
        channel.send([fd, *child.owned_fds, *child.borrowed_fds])
    finally:
        os.close(fd)
