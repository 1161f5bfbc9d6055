"""The shim's side of the zygote: children from their order to their reaping (decision 70).

A child is known by its channel until its first message tells its process id. A channel that ends
before any message means that there is no such child: the order is given again, to a new zygote if
the old one has died. Some children are forked ahead, and wait for their order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys as python
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from trainyard.podruntime import event_loop, limit_errors
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.forked_child import Child
from trainyard.podruntime.processes import child_tasks, descendants
from trainyard.podruntime.processes.child_channel import Channel, Message, memory_file
from trainyard.podruntime.processes.child_tasks import FLAGS, Order, Progress

_AT_ONCE = 8
# Of an order, and of zygotes in a row that have forked nothing.
_ATTEMPTS = 10
_LIFE_SIGN_SECONDS = 30.0
_DELAY_SECONDS = 1.0
_LAST_MESSAGES = 16


_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from trainyard.podruntime import zygote; zygote.main()"
)
# The caller's environment, folder and site packages have no say, nor a place in its memory.
_SWITCHES = ("-I", "-S", "-B", "-X", "utf8", "-c", _BOOT)


class _Spare(Child):
    """One without an order yet; ``impossible()`` is called when it cannot be had."""

    def __init__(self, flags: int, impossible: Callable[[], None]) -> None:
        super().__init__(None, flags, ())
        self._impossible = impossible

    def refused(self, reason: str) -> None:
        self._impossible()

    def told(self, progress: Progress, descriptors: list[int]) -> None:
        super().told(progress, descriptors)
        if progress.error:
            self._impossible()


class Nursery:
    """Has children forked, and follows them.

    ``ends_strangers``: whatever becomes our child in another way was left behind, and is killed.
    """

    def __init__(
        self, around: event_loop.Loop, spare_flags: int, base: str, *, ends_strangers: bool
    ) -> None:
        """``spare_flags``: the namespaces of children that are forked ahead; ``base`` as in
        ``Surroundings``."""
        self._loop, self._base = around, base
        self._spare_flags, self._can_spare = spare_flags, True
        self._spares: deque[Child] = deque()
        self._ends_strangers = ends_strangers
        self._may_have_strangers = False
        self._queue: deque[Child] = deque()
        self._unborn: list[Child] = []
        self._by_pid: dict[int, Child] = {}
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
            self._zygote, self._control = _spawn_zygote(self._base)
        except OSError as error:
            self._zygote, self._control = 0, None
            self._fail(limit_errors.explain(error))
            return
        self._loop.register(self._control.fileno(), lambda _: self._lost(), self._broken)

    def _broken(self, _: Exception) -> None:
        self._lost()

    def _lost(self) -> None:
        """The zygote has died (it never says anything); a new one takes its place."""
        if self._control is None:
            return
        self._loop.unregister(self._control.fileno())
        self._control.close()
        self._control = None
        if self._zygote:
            os.kill(self._zygote, signal.SIGKILL)
        if not self._closed:
            event_loop.log("the zygote has died")
            self._fail("the process that starts containers dies again and again: see shim.log")

    def _fail(self, reason: str) -> None:
        if time.monotonic() - self._spawned_at > _LIFE_SIGN_SECONDS:
            self._failures = 0
        self._failures += 1
        if self._failures >= _ATTEMPTS:
            waiting, self._queue = self._queue, deque()
            for child in waiting:
                self._refuse(child, reason)

    # -- from the order to the first message --------------------------------------------------

    def start(self, child: Child) -> None:
        """Have it forked; nothing raises, it is told when it is there and when it cannot be."""
        self._queue.append(child)
        self._pump()

    def _pump(self) -> None:
        if self._control is None and time.monotonic() >= self._spawned_at + _DELAY_SECONDS:
            self._spawn()
        while self._queue and self._control is not None and len(self._unborn) < _AT_ONCE:
            child = self._queue.popleft()
            event_loop.guarded(partial(self._send, child), partial(self._not_sent, child))

    def _send(self, child: Child) -> None:
        if child.wanted_signal:
            self._refuse(child, "it was ended before it was there")
            return
        if child.order is not None and any(self._replace(s, child) for s in self._fitting(child)):
            return
        assert self._control is not None
        child.attempts += 1
        child.deadline = time.monotonic() + _LIFE_SIGN_SECONDS
        channel = child.channel = Channel()
        if child.order is not None:
            _give_order(channel, child.order, child)
        try:
            socket.send_fds(
                self._control, [FLAGS.pack(child.flags)], [channel.theirs, *child.born_in]
            )
        except (BrokenPipeError, ConnectionResetError):
            pass  # its death is told in a moment; the channel's end has the order given anew
        finally:
            channel.close_theirs()
        self._unborn.append(child)
        self._watch(child, channel)

    def _watch(self, child: Child, channel: Channel) -> None:
        self._loop.register(
            channel.fileno(), lambda _: self._read(child), partial(self._junk, child)
        )

    def _not_sent(self, child: Child, error: Exception) -> None:
        self._refuse(child, limit_errors.explain(error))

    def _refuse(self, child: Child, reason: str) -> None:
        self._forget_channel(child)
        child.refused(reason)
        child.close_given()

    # -- its channel ----------------------------------------------------------------------------

    def _read(self, child: Child) -> None:
        """Take one message, if there is one."""
        if child.channel is None:
            return
        try:
            message = child.channel.receive()
        except BlockingIOError:
            return
        if message is not None:
            self._take(child, message)
            return
        self._forget_channel(child)
        if not child.pid:
            self._stillborn(child)

    def _read_all(self, child: Child) -> None:
        """Take what is there, within reason."""
        for _ in range(_LAST_MESSAGES):
            event_loop.guarded(partial(self._read, child), partial(self._junk, child))

    def _take(self, child: Child, message: Message) -> None:
        sender, progress, descriptors = message
        if not child.pid and progress.error:  # it is the zygote that tells
            self._unborn.remove(child)
            self._refuse(child, progress.error)
        elif not child.pid:
            self._born(child, sender)
        elif sender != child.pid:
            for fd in descriptors:
                os.close(fd)
            raise PermissionError(f"process {sender} writes into the channel of {child.pid}")
        if child.pid and progress != Progress():
            child.told(progress, descriptors)

    def _born(self, child: Child, pid: int) -> None:
        self._unborn.remove(child)
        self._failures, self._can_spare = 0, True
        child.pid = pid
        self._by_pid[pid] = child
        child.close_given()
        if child.wanted_signal:
            child.kill(child.wanted_signal)
        elif isinstance(child, _Spare):
            self._spares.append(child)
        self._pump()

    def _stillborn(self, child: Child) -> None:
        self._unborn.remove(child)
        if child.attempts >= _ATTEMPTS:
            self._refuse(
                child, f"its first process died before it could say a word, {_ATTEMPTS} times"
            )
        else:
            self._queue.appendleft(child)
        self._pump()

    def _junk(self, child: Child, error: Exception) -> None:
        self._forget_channel(child)
        if child in self._unborn:
            self._unborn.remove(child)
            self._refuse(child, f"{error}")
        else:
            child.junk(error)

    def _forget_channel(self, child: Child) -> None:
        if child.channel is not None:
            self._loop.unregister(child.channel.fileno())
            child.channel.close()
            child.channel = None

    # -- forked ahead -----------------------------------------------------------------------------

    def add_spare(self, most: int) -> bool:
        """Have a child forked that waits for an order, unless ``most`` do; False then."""
        if self._control is None or self._closed or not self._can_spare:
            return False
        if self._queue or self._unborn:
            return True
        if len(self._spares) >= most:
            return False
        self.start(_Spare(self._spare_flags, self._make_no_spares))
        return True

    def _make_no_spares(self) -> None:
        self._can_spare = False  # the next start will tell what is wrong

    def _fitting(self, child: Child) -> Iterator[Child]:
        while self._spares and self._spare_flags == child.flags:
            yield self._spares.popleft()

    def _replace(self, spare: Child, child: Child) -> bool:
        """Let ``child`` be the process that ``spare`` is; False if that has died."""
        channel = spare.channel
        if channel is None or child.order is None:
            return False
        try:
            _give_order(channel, child.order, child)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self._loop.unregister(channel.fileno())
        spare.channel, child.channel = None, channel
        child.pid = spare.pid
        self._by_pid[child.pid] = child
        child.close_given()
        self._watch(child, channel)
        return True

    # -- the end ----------------------------------------------------------------------------------

    def reap(self) -> None:
        """Collect all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == self._zygote:
                self._zygote = 0
                self._lost()
                continue
            if pid not in self._by_pid:  # perhaps its first message has not been read yet
                for child in list(self._unborn):
                    self._read_all(child)
            if (ended := self._by_pid.pop(pid, None)) is not None:
                if ended in self._spares:
                    self._spares.remove(ended)
                self._read_all(ended)
                self._forget_channel(ended)
                event_loop.guarded(partial(ended.ended, status), ended.junk)
        self._may_have_strangers = self._ends_strangers  # they come with their parents' death

    def tick(self) -> None:
        """Repair what has to be; to be called now and then."""
        now = time.monotonic()
        if late := [child for child in self._unborn if child.deadline <= now]:
            event_loop.log("the zygote does not answer")
            self._lost()
            for child in late:
                self._forget_channel(child)
                self._stillborn(child)
        if not self._closed:
            self._pump()
        if self._may_have_strangers and not self._unborn:  # one of those might be taken for one
            self._may_have_strangers = False
            self._end_strangers()

    @property
    def is_idle(self) -> bool:
        """Whether there are no children and none are to come."""
        return not (self._queue or self._unborn or self._by_pid)

    def close(self) -> None:
        """Start nothing more, and end all that there is."""
        self._closed = True
        waiting, self._queue = self._queue, deque()
        for child in waiting:
            self._refuse(child, "the node ends")
        for child in (*self._unborn, *self._by_pid.values()):
            child.end()

    def end_zygote(self) -> None:
        """Leave no process behind; nothing can be started any more."""
        self._closed = True
        if self._zygote:
            os.kill(self._zygote, signal.SIGKILL)
            os.waitpid(self._zygote, 0)
            self._zygote = 0

    def _end_strangers(self) -> None:
        """Kill orphans of a child that was killed itself; theirs come next."""
        for pid in descendants.children():
            if pid != self._zygote and pid not in self._by_pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _spawn_zygote(base: str) -> tuple[int, socket.socket]:
    """Start a zygote; returns its process id and the socket that takes requests.

    It is a child of this process, and dies with it. ``base`` as in ``Surroundings``, "" where pods
    have no root of their own.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = sys.import_folder()
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
            event_loop.log(f"cannot run {python.executable}: {error}")
        finally:
            os._exit(1)


def _give_order(channel: Channel, order: Order, child: Child) -> None:
    """Send a child its order and all it needs; it reads that when it is there."""
    fd = memory_file(child_tasks.pack(order))
    try:
        channel.send([fd, *child.given, *child.lent])
    finally:
        os.close(fd)
