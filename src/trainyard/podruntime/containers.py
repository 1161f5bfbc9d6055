"""Pods in the shim: their containers, the commands in them, and their output."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import time
from collections.abc import Callable, Iterable

from trainyard.podruntime import isolation, limit_errors
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.event_loop import EventLoop, run_catching
from trainyard.podruntime.forked_child import ForkedChild
from trainyard.podruntime.isolation import Sandbox
from trainyard.podruntime.log_files import LogFile, LogLimits
from trainyard.podruntime.processes.child_tasks import (
    CANNOT_START,
    FORK_INTO_CGROUP,
    FORK_INTO_PROCESS_NAMESPACE,
    NOT_EXECUTABLE,
    ChildReport,
    ChildTask,
)
from trainyard.podruntime.protocol import (
    ContainerState,
    Event,
    PodState,
    SessionEnded,
    Start,
    to_raw,
)

_READ_BYTES = 1 << 16
# A process outside the container (an ``exec`` session) can hold its output open; after this
# long the container's end is reported all the same.
_DRAIN_SECONDS = 1.0


class OutputSubscriber:
    """A pipe that gets all output of a container, as fast as its reader reads."""

    def __init__(self, fd: int, loop: EventLoop, on_caught_up: Callable[[], None]) -> None:
        """Takes ``fd`` over; ``on_caught_up()`` is called when it has everything, or is closed."""
        self._fd, self._loop, self._on_caught_up = fd, loop, on_caught_up
        self._unsent = b""
        self._is_ending = False
        os.set_blocking(fd, False)
        loop.register(fd, self._ready, lambda _: self.close())

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._fd < 0

    @property
    def is_behind(self) -> bool:
        """Whether it has yet to take what it was given."""
        return bool(self._unsent)

    def write(self, data: bytes) -> None:
        """Send these bytes, as soon as the pipe takes them."""
        self._unsent += data
        self._send()

    def finish(self) -> None:
        """Close it once it has everything."""
        self._is_ending = True
        self._send()

    def close(self) -> None:
        """Close it at once."""
        if self._fd >= 0:
            self._loop.unregister(self._fd)
            os.close(self._fd)
            self._fd, self._unsent = -1, b""
            self._on_caught_up()

    def _ready(self, events: int) -> None:
        # The writing end of a pipe reports nothing else than that its reader has gone.
        if events & ~select.EPOLLOUT:
            self.close()
            return
        self._send()
        if not self._unsent:
            self._on_caught_up()

    def _send(self) -> None:
        if self._fd < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._is_ending and not self._unsent:
            self.close()
        else:
            self._loop.watch_writing(self._fd, bool(self._unsent))


class Container(ForkedChild):
    """One run of a container: its processes, its output, how it ended."""

    def __init__(
        self,
        start: Start,
        task: ChildTask,
        flags: int,
        borrowed_fds: Iterable[int],
        hub: ContainerHub,
    ) -> None:
        """``borrowed_fds``: the pod's namespaces."""
        super().__init__(task, flags, (), borrowed_fds)
        self.program = start.program
        self.state = ContainerState(
            start.pod,
            start.name,
            start.attempt,
            0,
            "starting",
            started_at=time.time_ns(),
            gpus=start.program.gpus,
            cgroups=start.program.cgroups,
        )
        self.has_ended = False
        """Whether it was reaped. Its state is ``exited`` only once its output is read too."""
        self._hub = hub
        self._has_input, self._awaits_terminal = bool(start.stdin), start.tty
        self._input_is_exclusive = start.stdin == "once" and not start.tty
        self._output = self._input = -1
        self._subscribers: list[OutputSubscriber] = []
        self._is_paused = False
        """Whether reading its output waits until all subscribers have what there was."""
        self._log: LogFile | None = None
        self._log_path, self._limits = start.log, LogLimits(start.log_bytes, start.log_files)
        self._drain_until = 0.0

    def join_process_namespace(self, other: Container) -> None:
        """Share the process namespace of another; ProcessLookupError if that does not run."""
        if other.has_ended or other.state.state != "running":
            raise ProcessLookupError(f"container {other.state.name} is not running")
        self.fork_into.append(isolation.open_namespace(other.pid, "pid"))
        self.flags = self.flags & ~sys.CLONE_NEWPID | FORK_INTO_PROCESS_NAMESPACE
        self.leaves_descendants = True

    def open(self) -> None:
        """Open its log and the pipe of its output; raises OSError."""
        self._log = LogFile(self._log_path, self._limits)
        if not self._awaits_terminal:
            self._output, writer = os.pipe2(os.O_CLOEXEC)
            self.owned_fds.append(writer)
            self._watch_output()
            if self._has_input:
                reader, self._input = os.pipe2(os.O_CLOEXEC)
                self.owned_fds.append(reader)
        if (group := _open_cgroup_v2(self.program.cgroups)) >= 0:
            self.fork_into.append(group)
            self.flags |= FORK_INTO_CGROUP

    def kill_tree(self) -> None:
        """Kill it with all its descendants."""
        if not self.has_ended:
            super().kill_tree()

    def discard(self) -> None:
        """Kill it, and read no more of its output."""
        self.kill_tree()
        self._close_output()

    # -- reports -----------------------------------------------------------------------------------

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        if report.terminal and self._awaits_terminal and self.state.state == "starting":
            self._awaits_terminal = False
            (self._output,) = descriptors
            self._input = os.dup(self._output)
            self._watch_output()
        else:
            super().on_report(report, descriptors)
        before = self.state.state
        self._record(report)
        if self.state.state != before:
            self._hub.notify(self.state)

    def _record(self, report: ChildReport) -> None:
        self.state = self.state._replace(
            pid=self.pid,
            state="running" if report.started else self.state.state,
            error=report.error or self.state.error,
            signal=report.signal or self.state.signal,
            full=report.full or self.state.full,
            code=self.state.code if report.code is None else report.code,
        )

    def on_invalid_report(self, error: Exception) -> None:
        text = f"it was ended, since what came from it cannot be: {limit_errors.explain(error)}"
        self._record(ChildReport(error=text, code=CANNOT_START))
        self._close_output()
        self.kill_tree()
        if self.has_ended:
            self._report_exit()

    def on_not_started(self, reason: str) -> None:
        self._record(ChildReport(error=reason, code=CANNOT_START))
        self._mark_ended()
        self._report_exit()

    def on_exit(self, status: int) -> None:
        if self.state.code is None:
            code = os.waitstatus_to_exitcode(status)
            exit_code = code if code >= 0 else 128 - code
            self.state = self.state._replace(signal=max(0, -code), code=exit_code)
        self._mark_ended()
        self._resume_output()
        if self.leaves_descendants:  # else the sessions have died with it
            for session in self._hub.sessions:
                if session.container is self:
                    session.kill_tree()
        if self._output < 0:
            self._report_exit()
        else:
            self._drain_until = time.monotonic() + _DRAIN_SECONDS
            self._hub.due.add(self)

    def _mark_ended(self) -> None:
        self.has_ended = True
        self.state = self.state._replace(finished_at=time.time_ns())

    def _report_exit(self) -> None:
        """Write the outcome to a file beside the log, which outlives the shim, and notify."""
        if self.state.state == "exited":
            return
        self.state = self.state._replace(state="exited")
        self._close_output()
        if self._log is not None:
            self._log.close()
        path = os.path.splitext(self._log_path)[0] + ".exit"
        with contextlib.suppress(OSError):
            with open(path + ".new", "wb", buffering=0) as file:
                file.write(json.dumps(to_raw(self.state)).encode())
            os.replace(path + ".new", path)
        self._hub.notify(self.state)

    # -- output ------------------------------------------------------------------------------------

    def attach(self, subscriber: int, *, stdin: bool) -> list[int]:
        """Copy output from now on to a subscriber's pipe, which is taken over.

        Returns the writing end of the container's input, if it has one.
        """
        try:
            self._subscribers.append(
                OutputSubscriber(subscriber, self._hub.loop, self._resume_output)
            )
        except OSError:
            os.close(subscriber)
            raise
        if self._input < 0 or (self._input_is_exclusive and not stdin):
            return []
        if not self._input_is_exclusive:
            return [os.dup(self._input)]
        writer, self._input = self._input, -1
        return [writer]

    def _resume_output(self) -> None:
        """Read output again once no subscriber holds it up."""
        self._subscribers = [each for each in self._subscribers if not each.is_closed]
        if self._is_paused and (
            self.has_ended or not any(each.is_behind for each in self._subscribers)
        ):
            self._is_paused = False
            if self._output >= 0:
                self._watch_output()

    def _watch_output(self) -> None:
        # With a terminal that holds, too, for whoever attaches and writes to it.
        os.set_blocking(self._output, False)
        self._hub.loop.register(self._output, lambda _: self._read(), self.on_invalid_report)

    def _receive(self) -> bytes | None:
        """Read output: empty at its end, None where there is none right now."""
        try:
            return os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal that nobody has open any more
                raise
            return b""

    def _read(self) -> None:
        assert self._log is not None
        data = self._receive()
        if data is None:
            return
        if not data:
            self._close_output()
            if self.has_ended:
                self._report_exit()
            return
        self._log.write(data)
        for subscriber in list(self._subscribers):
            subscriber.write(data)
        if not self.has_ended and any(subscriber.is_behind for subscriber in self._subscribers):
            self._is_paused = True
            self._hub.loop.unregister(self._output)
        if self.due_at is not None:
            self._hub.due.add(self)

    @property
    def due_at(self) -> float | None:
        """When to check it without new output (monotonic seconds); None: not at all."""
        if self.has_ended:
            return None if self.state.state == "exited" else self._drain_until
        return None if self._log is None else self._log.flush_at

    def check(self) -> None:
        """Write an unfinished line to the log, or give up waiting for output to end."""
        if self.has_ended:
            self._report_exit()
        elif self._log is not None:
            self._log.flush()

    def _close_output(self) -> None:
        if self._output >= 0:
            self._hub.loop.unregister(self._output)
            os.close(self._output)
            self._output = -1
        if self._input >= 0:
            os.close(self._input)
            self._input = -1
        for subscriber in list(self._subscribers):
            subscriber.finish()


class ContainerHub:
    """What containers share: the loop, the way to notify the agent, timers, and exec sessions."""

    def __init__(self, loop: EventLoop, notify: Callable[[Event], None]) -> None:
        self.loop = loop
        self.notify = notify
        self.due: set[Container] = set()
        self.sessions: set[ExecSession] = set()

    def wait_seconds(self) -> float | None:
        """Seconds until the next container is due; None if none is."""
        due = [moment for container in self.due if (moment := container.due_at) is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def check(self) -> None:
        """Check the containers that are due."""
        now = time.monotonic()
        for container in list(self.due):
            if container.due_at is None:
                self.due.discard(container)
            elif container.due_at <= now:
                self.due.discard(container)
                run_catching(container.check, container.on_invalid_report)


def _open_cgroup_v2(groups: Iterable[str]) -> int:
    """A descriptor of the cgroup v2 among these; -1 if there is none."""
    for path in groups:
        if os.path.exists(f"{path}/cgroup.events"):
            with contextlib.suppress(OSError):
                return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return -1


class ExecSession(ForkedChild):
    """A command in a container (``exec``); without namespaces, until its descendants end too."""

    def __init__(
        self,
        name: str,
        container: Container,
        task: ChildTask,
        borrowed_fds: Iterable[int],
        hub: ContainerHub,
    ) -> None:
        """``borrowed_fds``: the pod's namespaces.

        ``owned_fds`` follow: standard streams or the terminal's socket, and behind them the
        container's own namespaces.
        """
        super().__init__(task, 0, (), borrowed_fds)
        self.name = name
        self.container = container
        self._hub = hub
        self._is_reported = False

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        super().on_report(report, descriptors)
        if report.code is not None:
            self._report_end(report.code)

    def on_invalid_report(self, error: Exception) -> None:
        self.kill_tree()

    def on_not_started(self, reason: str) -> None:
        self._hub.sessions.discard(self)
        with contextlib.suppress(OSError):
            assert self.task is not None
            assert self.task.command is not None
            errors = self.owned_fds[0 if self.task.command.tty else 2]
            os.set_blocking(errors, False)
            os.write(errors, f"cannot run a command here: {reason}\n".encode(errors="replace"))
        self._report_end(NOT_EXECUTABLE)

    def on_exit(self, status: int) -> None:
        self._hub.sessions.discard(self)
        code = os.waitstatus_to_exitcode(status)
        self._report_end(code if code >= 0 else 128 - code)

    def _report_end(self, code: int) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._hub.notify(SessionEnded(self.name, code))


class RunningPod:
    """A pod's sandbox and the newest run of each of its containers."""

    def __init__(self, uid: str, sandbox: Sandbox) -> None:
        self.uid = uid
        self.sandbox = sandbox
        self.containers: dict[str, Container] = {}
        self.mounts: list[str] = []

    def state(self) -> PodState:
        containers = tuple(container.state for container in self.containers.values())
        return PodState(self.uid, self.sandbox.address, containers)
