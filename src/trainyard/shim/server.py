"""The shim: fork server, reaper and log pump of one cluster's pods.

A single-threaded process that the cluster starts before it imports anything heavy. It owns the
cluster's network namespace and every container process; it knows nothing of Kubernetes. The agent
speaks to it over a socket (see ``protocol``); when the agent goes away the shim either ends with
all its pods (``trainyard run``) or keeps them and waits for the next agent (``trainyard up``).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import assert_never

from trainyard.shim import isolation, program, protocol, relay, supervisor, wire
from trainyard.shim import syscalls as sys
from trainyard.shim.program import Surroundings
from trainyard.shim.protocol import Answer
from trainyard.shim.records import READ_BYTES, Container, Pod

_MAX_WAIT_SECONDS = 1.0
# After this long without work the next pod's network is made in advance.
_IDLE_SECONDS = 0.005
_RELAY = "relay"


class Shim:
    """State and main loop; one instance per shim process."""

    def __init__(self, state_dir: str, network: isolation.Network) -> None:
        self._network = network
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._pods: dict[str, Pod] = {}
        self._by_pid: dict[int, Container] = {}
        self._due: set[Container] = set()
        self._sessions: dict[int, str] = {}
        self._agent: wire.AgentConnection | None = None
        self._listener: socket.socket | None = None
        self._stopping = False
        self._relay = 0
        self._killer = supervisor.END_ALL if network.kind == "plain" else signal.SIGKILL
        self._base = os.path.join(state_dir, "root")
        os.makedirs(self._base, exist_ok=True)
        self._open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files[1],) * 2)
        self._last_capability = isolation.last_capability()
        self._watch_children()

    # -- the loop ---------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Accept agents on ``listener``, one at a time, instead of ending with the first one."""
        self._listener = listener
        self._register(listener.fileno(), lambda _: self.attach(listener.accept()[0]))

    def run(self) -> None:
        """Serve until told to stop, or (without a listener) until the agent is gone."""
        while not (self._stopping and not self._by_pid):
            ready = self._poll.poll(self._wait_seconds())
            for fd, events in ready:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(events)
            self._flush_due()
            if not ready and not self._stopping:
                self._network.prepare_spare()

    def _register(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def _unregister(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _wait_seconds(self) -> float:
        limit = _IDLE_SECONDS if self._network.wants_spare else _MAX_WAIT_SECONDS
        due = [moment for box in self._due if (moment := box.due_at) is not None]
        return min(limit, max(0.0, min(due) - time.monotonic())) if due else limit

    def _flush_due(self) -> None:
        """Write out lines that stay unfinished; give up on output that never ends."""
        now = time.monotonic()
        for box in list(self._due):
            if box.due_at is None:
                self._due.discard(box)
            elif box.due_at <= now:
                self._due.discard(box)
                if box.ended:
                    self._output_ended(box)
                else:
                    box.log.flush()

    # -- children -----------------------------------------------------------------------------

    def _watch_children(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

        def woken(_: int) -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)
            self._reap()

        self._register(reader, woken)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if (box := self._by_pid.pop(pid, None)) is not None:
                box.finish(status)
                if box.output < 0:
                    self._report_exit(box)
                else:
                    self._due.add(box)
            elif (session := self._sessions.pop(pid, None)) is not None:
                code = os.waitstatus_to_exitcode(status)
                self._tell(protocol.SessionEnded(session, code if code >= 0 else 128 - code))

    def _status(self, box: Container) -> None:
        """The container's status pipe: an error, records of the plain supervisor, or its end."""
        before = box.state.state
        data = os.read(box.status, READ_BYTES)
        if data:
            box.take_status(data)
        else:
            self._close(box, "status")
        if box.state.state != before:
            self._tell(box.state)

    def _output(self, box: Container) -> None:
        data = os.read(box.output, READ_BYTES)
        if data:
            box.log.write(data)
            if box.due_at is not None:
                self._due.add(box)
        else:
            self._output_ended(box)

    def _output_ended(self, box: Container) -> None:
        self._close(box, "output")
        if box.ended:
            self._report_exit(box)

    def _close(self, box: Container, name: str) -> None:
        fd = getattr(box, name)
        if fd >= 0:
            self._unregister(fd)
            os.close(fd)
            setattr(box, name, -1)

    def _report_exit(self, box: Container) -> None:
        if box.state.state == "exited":
            return
        while box.status >= 0:  # the writers are gone: read to the end, without blocking
            self._status(box)
        box.close()
        self._tell(box.state)

    # -- the agent ----------------------------------------------------------------------------

    def attach(self, connection: socket.socket) -> None:
        """Serve this agent from now on, instead of any that was there."""
        if self._agent is not None:
            self._detach(self._agent)
        network = self._network
        agent = wire.AgentConnection(connection, self._poll, self._serve)
        self._agent = agent
        self._register(agent.fileno(), lambda events: self._agent_ready(agent, events))
        agent.tell(
            protocol.Hello(
                os.getpid(),
                network.kind,
                network.reason,
                network.gateway,
                tuple(pod.state() for pod in self._pods.values()),
                protocol.VERSION,
            )
        )

    def _agent_ready(self, agent: wire.AgentConnection, events: int) -> None:
        if not agent.ready(events) and agent is self._agent:
            self._detach(agent)
            if self._listener is None:
                self._stop()

    def _detach(self, agent: wire.AgentConnection) -> None:
        self._unregister(agent.fileno())
        agent.close()
        self._agent = None

    def _tell(self, event: protocol.Event) -> None:
        if self._agent is not None:
            self._agent.tell(event)

    def _serve(self, request: protocol.Request, attached: list[int]) -> tuple[Answer, list[int]]:
        match request:
            case protocol.AddPod():
                return Answer(address=self._add_pod(request)), []
            case protocol.OpenSocket(pod):
                return Answer(), [self._network.open_socket(self._pods[pod].sandbox)]
            case protocol.AddTmpfs():
                self._add_tmpfs(request)
            case protocol.RemovePod(pod):
                self._remove(pod)
            case protocol.SetForwards():
                self._forward(request)
            case protocol.Shutdown():
                self._stop()
            case _:
                self._serve_container(request, attached)
        return Answer(), []

    def _serve_container(self, request: protocol.ContainerRequest, attached: list[int]) -> None:
        match request:
            case protocol.Start():
                self._start(request)
            case protocol.Exec():
                self._exec(request, attached)
            case protocol.EndSession(session):
                self._end_session(session)
            case protocol.Signal():
                self._signal(request)
            case protocol.Kill(pod, name):
                self._kill(pod, name)
            case _:
                assert_never(request)

    # -- what it is asked for: see ``protocol`` --------------------------------------------------

    def _add_pod(self, wanted: protocol.AddPod) -> str:
        if wanted.pod not in self._pods:
            sandbox = self._network.add_pod(wanted.hostname, wanted.address)
            self._pods[wanted.pod] = Pod(wanted.pod, sandbox)
        return self._pods[wanted.pod].sandbox.address

    def _start(self, start: protocol.Start) -> None:
        owner = self._pods[start.pod]
        before = owner.containers.get(start.name)
        if before is not None and not before.ended:
            raise FileExistsError(f"container {start.name} is running")
        if start.root is None and self._network.kind != "plain":
            raise ValueError("a container in namespaces needs a root")
        status_reader, status_writer = os.pipe2(os.O_CLOEXEC)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            around = self._surroundings(owner)
            pid = supervisor.spawn(start, around, status_writer, writer)
        finally:
            os.close(status_writer)
            os.close(writer)
        box = Container(start, pid, status_reader, reader)
        owner.containers[start.name] = box
        self._by_pid[pid] = box
        self._register(status_reader, lambda _: self._status(box))
        self._register(reader, lambda _: self._output(box))

    def _surroundings(self, pod: Pod) -> Surroundings:
        kind, (_, namespaces, user) = self._network.kind, pod.sandbox
        limits = self._last_capability, self._open_files
        return Surroundings(self._base, kind, namespaces, *limits, user)

    def _exec(self, wanted: protocol.Exec, attached: list[int]) -> None:
        box = self._pods[wanted.pod].containers[wanted.name]
        if box.ended or box.state.state != "running":
            raise ProcessLookupError(f"container {wanted.name} is not running")
        if len(attached) != (1 if wanted.tty else 3):
            raise ValueError(f"{len(attached)} descriptors are attached")
        command = box.program._replace(argv=wanted.argv)
        around = self._surroundings(self._pods[wanted.pod])
        pid = program.spawn_command(command, around, box.state.pid, attached, wanted.tty)
        self._sessions[pid] = wanted.session

    def _end_session(self, wanted: str) -> None:
        for pid, session in self._sessions.items():
            if session == wanted:
                os.kill(pid, signal.SIGKILL)

    def _add_tmpfs(self, wanted: protocol.AddTmpfs) -> None:
        """Mounted in the shim's own mount namespace: its content outlives a container.

        Without namespaces the folder stays as it is.
        """
        pod, path = self._pods[wanted.pod], wanted.path
        if self._network.kind != "plain" and path not in pod.mounts:
            options = f"mode=1777,size={wanted.size}" if wanted.size else "mode=1777"
            sys.mount("tmpfs", path, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, options)
            pod.mounts.append(path)

    def _signal(self, wanted: protocol.Signal) -> None:
        box = self._pods[wanted.pod].containers[wanted.name]
        if not box.ended:
            os.kill(box.state.pid, wanted.number)

    def _kill(self, pod: str, name: str) -> None:
        if pod not in self._pods:
            return
        for box in self._pods[pod].containers.values():
            if not box.ended and name in ("", box.state.name):
                box.kill(self._killer)

    def _remove(self, pod: str) -> None:
        owner = self._pods.pop(pod, None)
        if owner is None:
            return
        for box in owner.containers.values():
            if not box.ended:
                box.kill(self._killer)
            self._close(box, "status")
            self._close(box, "output")
        for path in owner.mounts:
            sys.umount(path)
        self._network.remove_pod(owner.sandbox)

    def _forward(self, wanted: protocol.SetForwards) -> None:
        if not self._relay:
            if not wanted.forwards:
                return
            pid, self._relay = relay.spawn(self._network.kind != "plain")
            self._sessions[pid] = _RELAY
        data = json.dumps(protocol.to_raw(wanted), separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._relay, data) :]

    def _stop(self, *_: object) -> None:
        self._stopping = True
        for box in self._by_pid.values():
            box.kill(self._killer)
        for pid in self._sessions:
            os.kill(pid, signal.SIGKILL)


def serve(
    state_dir: str,
    mode: str,
    owner: int,
    agent: socket.socket | None,
    listener: socket.socket | None,
) -> None:
    """The shim process, from fork to end; without ``listener`` it ends with process ``owner``."""
    sys.set_process_name("trainyard-shim")
    gc.freeze()
    try:
        network = isolation.prepare(mode)
    except OSError as error:
        if agent is not None:
            agent.sendall(wire.encode(protocol.event(protocol.Failed(str(error)))))
            return
        raise
    if listener is None:
        # Without namespaces the shim has to clean up itself when its owner dies.
        end = signal.SIGTERM if network.kind == "plain" else signal.SIGKILL
        sys.die_with_parent(end)
        if os.getppid() != owner:
            return
    shim = Shim(state_dir, network)
    if agent is not None:
        shim.attach(agent)
    if listener is not None:
        shim.listen(listener)
    shim.run()
