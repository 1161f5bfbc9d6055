"""The shim: fork server, reaper and log pump of one cluster's pods.

A single-threaded process that the cluster starts before it imports anything heavy. It owns the
cluster's network namespace and every container process; it knows nothing of Kubernetes. The agent
speaks to it over a socket (see ``wire``); when the agent goes away the shim either ends with all
its pods (``trainyard run``) or keeps them and waits for the next agent (``trainyard up``).
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
from typing import Any

from trainyard.shim import exec_process, first_process, isolation, relay, supervisor, wire
from trainyard.shim import syscalls as sys
from trainyard.shim.logpump import READ_BYTES
from trainyard.shim.records import Container, Pod

_MAX_WAIT_SECONDS = 1.0
# After this long without work the next pod's network is made in advance.
_IDLE_SECONDS = 0.005
# What a command run in a container later on shares with it.
_IDENTITY = (
    "gpus",
    "cwd",
    "env",
    "user",
    "group",
    "groups",
    "capabilities",
    "dropped",
    "noNewPrivileges",
    "privileged",
    "cgroups",
)


class Shim:
    """State and main loop; one instance per shim process."""

    def __init__(self, state_dir: str, network: isolation.Network, agent: socket.socket) -> None:
        self._state_dir = state_dir
        self._network = network
        self._poll = select.epoll()
        self._handlers: dict[int, Any] = {}
        self._pods: dict[str, Pod] = {}
        self._by_pid: dict[int, Container] = {}
        self._due: set[Container] = set()
        self._helpers: dict[int, dict[str, Any]] = {}
        self._agent: socket.socket | None = None
        self._decoder = wire.Decoder()
        self._outgoing = bytearray()
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
        self._attach(agent)

    # -- the loop ---------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Accept agents on ``listener``, one at a time, instead of ending with the first one."""
        self._listener = listener
        self._register(listener.fileno(), self._accept)

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

    def _register(self, fd: int, handler: Any) -> None:
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
        signal.signal(signal.SIGTERM, self._terminated)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

        def woken(_: int) -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)
            self._reap()

        self._register(reader, woken)

    def _terminated(self, *_: object) -> None:
        self._stop()

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
            elif (helper := self._helpers.pop(pid, None)) is not None:
                code = os.waitstatus_to_exitcode(status)
                self._send({"event": "exec", **helper, "code": code if code >= 0 else 128 - code})

    def _status(self, box: Container) -> None:
        """The container's status pipe: an error, records of the plain supervisor, or its end."""
        was_started = box.started
        data = os.read(box.status, READ_BYTES)
        if data:
            box.take_status(data)
        else:
            self._close(box, "status")
        if box.started and not was_started:
            self._send({"event": "started", **box.describe()})

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
        if box.reported:
            return
        while box.status >= 0:  # the writers are gone: read to the end, without blocking
            self._status(box)
        box.reported = True
        box.log.close()
        box.record()
        self._send({"event": "exited", **box.describe()})

    # -- the agent ----------------------------------------------------------------------------

    def _attach(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._agent, self._decoder, self._outgoing = connection, wire.Decoder(), bytearray()
        self._register(connection.fileno(), self._agent_ready)
        self._send(
            {
                "event": "hello",
                "pid": os.getpid(),
                "isolation": self._network.kind,
                "reason": self._network.reason,
                "gateway": self._network.gateway,
                "pods": [pod.describe() for pod in self._pods.values()],
            }
        )

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        connection, _address = self._listener.accept()
        self._detach()
        self._attach(connection)

    def _detach(self) -> None:
        if self._agent is not None:
            self._unregister(self._agent.fileno())
            self._agent.close()
            self._agent = None

    def _agent_ready(self, events: int) -> None:
        assert self._agent is not None
        if events & select.EPOLLOUT:
            self._send({})
        if not events & ~select.EPOLLOUT:
            return
        messages = self._decoder.receive(self._agent)
        if messages is None:
            self._detach()
            if self._listener is None:
                self._stop()
            return
        for message in messages:
            self._answer(message)

    def _answer(self, message: wire.Message) -> None:
        identity = message.pop("id")
        descriptors: list[int] = []
        attached = self._decoder.take_descriptors(message.pop("descriptors", 0))
        try:
            if attached:
                message["attached"] = attached
            answer = getattr(self, "op_" + message.pop("op"))(**message) or {}
            descriptors = answer.pop("descriptors", [])
        except Exception as error:  # the shim must live on; the agent reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        finally:
            for fd in attached:
                os.close(fd)
        self._send({"id": identity, **answer}, descriptors)

    def _send(self, message: wire.Message, descriptors: list[int] | None = None) -> None:
        if self._agent is None:
            return
        if descriptors:  # must ride on the first byte of their own message
            message["descriptors"] = len(descriptors)
        if message:
            self._outgoing += wire.encode(message)
        try:
            if descriptors:
                sent = wire.send_descriptors(self._agent, bytes(self._outgoing), descriptors)
                for fd in descriptors:
                    os.close(fd)
            else:
                sent = self._agent.send(self._outgoing) if self._outgoing else 0
            del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()
            return
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._outgoing else 0)
        self._poll.modify(self._agent.fileno(), wanted)

    # -- operations (one method each, named op_*) ------------------------------------------------

    def op_pod(self, pod: str, hostname: str, address: str = "") -> dict[str, Any]:
        """Make a pod's network, host name and IPC; returns its ``address``."""
        if pod not in self._pods:
            self._pods[pod] = Pod(pod, self._network.add_pod(hostname, address))
        return {"address": self._pods[pod].sandbox.address}

    def op_start(self, pod: str, name: str, attempt: int, log: str, **spec: Any) -> None:
        """Start a container; ``started`` or ``exited`` follows as an event."""
        owner = self._pods[pod]
        before = owner.containers.get(name)
        if before is not None and not before.ended:
            raise FileExistsError(f"container {name} is running")
        status_reader, status_writer = os.pipe2(os.O_CLOEXEC)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            around = self._surroundings(owner)
            pid = first_process.spawn(spec, around, status_writer, writer)
        finally:
            os.close(status_writer)
            os.close(writer)
        box = Container(pod, name, attempt, pid, log, status_reader, reader)
        box.identity = {key: spec.get(key) for key in _IDENTITY}
        owner.containers[name] = box
        self._by_pid[pid] = box
        self._register(status_reader, lambda _: self._status(box))
        self._register(reader, lambda _: self._output(box))

    def _surroundings(self, pod: Pod) -> first_process.Surroundings:
        return first_process.Surroundings(
            base=self._base,
            kind=self._network.kind,
            namespaces=pod.sandbox.namespaces,
            last_capability=self._last_capability,
            open_files=self._open_files,
        )

    def op_exec(
        self, pod: str, name: str, session: str, argv: list[str], tty: bool, attached: list[int]
    ) -> None:
        """Run a command in a container; its end follows as an ``exec`` event.

        ``attached`` is stdin, stdout and stderr, or with ``tty`` a socket that receives the
        terminal's controlling end.
        """
        box = self._pods[pod].containers[name]
        if box.ended or not box.started:
            raise ProcessLookupError(f"container {name} is not running")
        spec = {**box.identity, "argv": argv}
        around = self._surroundings(self._pods[pod])
        pid = exec_process.spawn(spec, around, box.pid, attached, tty)
        self._helpers[pid] = {"session": session}

    def op_end_session(self, session: str) -> None:
        """Kill a command started by ``exec``."""
        for pid, helper in self._helpers.items():
            if helper["session"] == session:
                os.kill(pid, signal.SIGKILL)

    def op_tmpfs(self, pod: str, path: str, size: int) -> None:
        """Put a tmpfs of at most ``size`` bytes on ``path``, seen by the pod's containers only.

        It is mounted in the shim's own mount namespace: its content outlives a container, and it
        is gone with the pod or the shim. Without namespaces the folder stays as it is.
        """
        if self._network.kind != "plain" and path not in self._pods[pod].mounts:
            options = f"mode=1777,size={size}" if size else "mode=1777"
            sys.mount("tmpfs", path, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, options)
            self._pods[pod].mounts.append(path)

    def op_signal(self, pod: str, name: str, number: int) -> None:
        """Send a signal to a container's program."""
        box = self._pods[pod].containers[name]
        if not box.ended:
            os.kill(box.pid, number)

    def op_kill(self, pod: str, name: str = "") -> None:
        """SIGKILL one container, or all of the pod, with everything in it."""
        if pod not in self._pods:
            return
        for box in self._pods[pod].containers.values():
            if not box.ended and name in ("", box.name):
                box.kill(self._killer)

    def op_remove(self, pod: str) -> None:
        """Forget a pod, give its namespaces and its address back."""
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

    def op_socket(self, pod: str) -> dict[str, Any]:
        """A TCP socket inside the pod's network, for probes and port forwarding."""
        return {"descriptors": [self._network.open_socket(self._pods[pod].sandbox)]}

    def op_forward(self, forwards: list[Any]) -> None:
        """Replace the connections that the relay forwards; see ``relay.Forward``."""
        if not self._relay:
            if not forwards:
                return
            pid, self._relay = relay.spawn(self._network.kind != "plain")
            self._helpers[pid] = {"session": "relay"}
        data = json.dumps(forwards, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._relay, data) :]

    def op_shutdown(self) -> None:
        self._stop()

    def _stop(self) -> None:
        self._stopping = True
        for box in self._by_pid.values():
            box.kill(self._killer)
        for pid in self._helpers:
            os.kill(pid, signal.SIGKILL)


def serve(
    state_dir: str,
    mode: str,
    owner: int,
    agent: socket.socket,
    listener: socket.socket | None,
) -> None:
    """The shim process, from fork to end; without ``listener`` it ends with process ``owner``."""
    sys.set_process_name("trainyard-shim")
    gc.freeze()
    try:
        network = isolation.prepare(mode)
    except OSError as error:
        agent.sendall(wire.encode({"event": "failed", "reason": str(error)}))
        return
    if listener is None:
        # Without namespaces the shim has to clean up itself when its owner dies.
        end = signal.SIGTERM if network.kind == "plain" else signal.SIGKILL
        sys.die_with_parent(end)
        if os.getppid() != owner:
            return
    shim = Shim(state_dir, network, agent)
    if listener is not None:
        shim.listen(listener)
    shim.run()
