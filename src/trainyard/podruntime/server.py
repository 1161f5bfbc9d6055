"""The shim: owns a cluster's pods, their logs and their network.

A single-threaded process that the cluster starts before it imports anything heavy. It owns the
cluster's network namespace, and every container process is its child, forked by the ``zygote``. It
knows nothing of Kubernetes. The agent speaks to it over a socket (``protocol``). When the agent
goes away the shim either ends with all its pods (``trainyard run``) or keeps them for the next
agent (``trainyard up``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
from typing import assert_never

from trainyard.podruntime import event_loop, isolation, limit_errors, protocol, wire
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.containers import Container, ContainerHub, ExecSession, RunningPod
from trainyard.podruntime.egress import relay_launcher
from trainyard.podruntime.egress.egress_manager import EgressManager
from trainyard.podruntime.network.service_relay_manager import ServiceRelayManager
from trainyard.podruntime.processes.child_tasks import (
    FORWARDED_SIGNALS,
    ChildTask,
    ClusterContext,
    ExecTask,
)
from trainyard.podruntime.protocol import Answer, Attach, SetNames, SetNetwork
from trainyard.podruntime.source_copy import SourceCopy
from trainyard.podruntime.zygote_client import ZygoteClient

_MAX_WAIT_SECONDS = 1.0
_SPARES = 8
"""How many pod networks, and how many container inits, are made before a pod needs them."""
_MOST_OPEN_FILES = 1 << 20
"""As containerd gives its containers."""
_PREWARM_AFTER_SECONDS = 0.01
"""Spares are made after this long without work: sooner, they would compete with a starting pod."""


class PodRuntime:
    """State and request handlers; one instance in a shim process."""

    def __init__(
        self,
        state_dir: str,
        network: isolation.PodNetwork,
        outside: socket.socket | None,
        sources: SourceCopy,
        build: str,
    ) -> None:
        """``outside``: the socket of the process that launches egress relays, if there is one;
        ``build`` as in ``Hello``."""
        self._sources, self._build = sources, build
        self._network = network
        self._loop = event_loop.EventLoop()
        self._pods: dict[str, RunningPod] = {}
        self._agent: wire.AgentConnection | None = None
        self._listener: socket.socket | None = None
        self._stop_requested = self._is_stopping = False
        self._base = os.path.join(state_dir, "root")
        os.makedirs(self._base, exist_ok=True)
        self._memory = _open_memory(state_dir, network.kind)
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[1],) * 2)
        is_plain = network.kind == "plain"
        if is_plain:
            # Orphans of a container init that was killed become our children, and are killed.
            sys.prctl(sys.PR_SET_CHILD_SUBREAPER, 1)
        self._context = ClusterContext(
            self._base,
            network.kind,
            os.getpid() if is_plain else 0,
            isolation.last_capability(),
            _open_files_of_programs(*open_files),
        )
        self._watch_signals()
        self._hub = ContainerHub(self._loop, self._notify)
        self._flags = 0 if is_plain else sys.CLONE_NEWPID
        root_base = "" if is_plain else self._base
        self._zygote = ZygoteClient(
            self._loop, sources, self._flags, root_base, kills_orphans=is_plain
        )
        self._lacks_spares = True
        self._relay = ServiceRelayManager(self._context, self._zygote, self._loop, self._open_in)
        self._egress = EgressManager(self._loop, outside, network.gateway)

    # -- the loop ---------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Accept agents on ``listener``, one at a time, rather than ending with the first one."""
        self._listener = listener
        listener.setblocking(False)
        spare = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]

        def accept(_: int) -> None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self.attach(listener.accept()[0])

        def refuse(_: Exception) -> None:
            """Hang up: with too many open files, the listener would stay ready for ever."""
            while spare:
                os.close(spare.pop())
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
            with contextlib.suppress(OSError):
                spare.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))

        self._loop.register(listener.fileno(), accept, refuse)

    def answer_who_asks(self, lock: socket.socket) -> None:
        """Let others connect to ``lock``, which tells them all that they want to know."""
        self._loop.register(lock.fileno(), lambda _: lock.accept()[0].close(), lambda _: None)

    def run(self) -> None:
        """Serve until a shutdown, or, without a listener, until the agent is gone."""
        while not (self._is_stopping and self._zygote.is_idle):
            was_busy = self._loop.run_once(self._wait_seconds())
            if self._stop_requested:
                self._stop()
            self._hub.check()
            self._zygote.tick()
            self._relay.tick()
            self._egress.tick()
            if not was_busy and not self._is_stopping:
                if not self._lacks_spares:  # after a whole second without work
                    self._sources.make()
                self._prewarm()
        self._zygote.end_zygote()

    def _wait_seconds(self) -> float:
        seconds = _PREWARM_AFTER_SECONDS if self._lacks_spares else _MAX_WAIT_SECONDS
        due = self._hub.wait_seconds()
        return seconds if due is None else min(seconds, due)

    def _prewarm(self) -> None:
        """Make one spare network and one spare container init, as far as they are missing."""
        made_network = self._network.add_spare(_SPARES)
        made_process = self._zygote.add_spare(_SPARES)
        self._lacks_spares = made_network or made_process

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._request_stop)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

        def woken(_: int) -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)
            self._zygote.reap()

        self._loop.register(reader, woken, lambda _: None)

    def _request_stop(self, *_: object) -> None:
        """Only set a flag: a signal may come between any two steps of the loop."""
        self._stop_requested = True

    # -- the agent ----------------------------------------------------------------------------

    def attach(self, connection: socket.socket) -> None:
        """Serve this agent from now on, in place of the one before."""
        if self._agent is not None:
            self._detach(self._agent)
        network = self._network
        agent = self._agent = wire.AgentConnection(connection, self._loop, self._serve, self._gone)
        agent.send_event(
            protocol.Hello(
                os.getpid(),
                network.kind,
                network.reason,
                network.gateway,
                tuple(pod.state() for pod in self._pods.values()),
                protocol.VERSION,
                build=self._build,
            ),
            [os.dup(self._memory)],
        )

    def _gone(self, agent: wire.AgentConnection) -> None:
        if agent is self._agent:
            self._detach(agent)
            if self._listener is None:
                self._stop()

    def _detach(self, agent: wire.AgentConnection) -> None:
        agent.close()
        self._agent = None

    def _notify(self, event: protocol.Event) -> None:
        if self._agent is not None:
            self._agent.send_event(event)

    def _serve(self, request: protocol.Request, attached: list[int]) -> tuple[Answer, list[int]]:
        match request:
            case protocol.AddPod():
                return Answer(address=self._add_pod(request)), []
            case protocol.OpenSocket(pod):
                return Answer(), [self._network.open_socket(self._pod(pod).sandbox)]
            case protocol.OpenListener(port):
                return Answer(), [self._network.open_listener(port)]
            case Attach():
                return Answer(), self._attach(request, attached)
            case protocol.AddTmpfs():
                self._add_tmpfs(request)
            case protocol.RemovePod(pod):
                self._remove(pod)
            case protocol.SetForwards():
                self._relay.set(request)
            case SetNetwork() | SetNames():
                self._egress.set(request)
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
            case protocol.EndSession(name):
                for session in self._hub.sessions:
                    if session.name == name:
                        session.kill_tree()
            case protocol.Signal():
                self._signal(request)
            case protocol.Kill(pod, name):
                self._kill(pod, name)
            case _:
                assert_never(request)

    # -- requests: see ``protocol`` ---------------------------------------------------------

    def _pod(self, uid: str) -> RunningPod:
        try:
            return self._pods[uid]
        except KeyError:
            raise LookupError(f"there is no pod {uid}") from None

    def _open_in(self, address: str, kind: int) -> int:
        """Open a socket in the network of the pod at ``address``; LookupError if there is none."""
        for pod in self._pods.values():
            if pod.sandbox.address == address:
                return self._network.open_socket(pod.sandbox, kind)
        raise LookupError(f"no pod has the address {address}")

    def _container(self, uid: str, name: str) -> Container:
        try:
            return self._pod(uid).containers[name]
        except KeyError:
            raise LookupError(f"pod {uid} has no container {name}") from None

    def _add_pod(self, wanted: protocol.AddPod) -> str:
        if wanted.pod not in self._pods:
            sandbox = self._network.add_pod(wanted.hostname, wanted.address)
            self._pods[wanted.pod] = RunningPod(wanted.pod, sandbox)
            self._lacks_spares = True
        return self._pods[wanted.pod].sandbox.address

    def _start(self, start: protocol.Start) -> None:
        owner = self._pod(start.pod)
        before = owner.containers.get(start.name)
        if before is not None and not before.has_ended:
            raise FileExistsError(f"container {start.name} is running")
        if start.root is None and self._network.kind != "plain":
            raise ValueError("a container in namespaces needs a root")
        if self._is_stopping:
            raise ProcessLookupError("the node ends")
        spaces = owner.sandbox.all_namespaces
        task = ChildTask(self._context, start=start, namespaces=tuple(spaces))
        container = Container(start, task, self._flags, spaces.values(), self._hub)
        if start.share_processes_with and self._network.kind != "plain":
            container.join_process_namespace(self._container(start.pod, start.share_processes_with))
        owner.containers[start.name] = container
        try:
            container.open()
        except OSError as error:
            container.on_not_started(limit_errors.explain(error))
            container.close_owned()
        else:
            self._zygote.start(container)
            self._lacks_spares = True

    def _exec(self, wanted: protocol.Exec, attached: list[int]) -> None:
        container = self._container(wanted.pod, wanted.name)
        if container.has_ended or container.state.state != "running" or self._is_stopping:
            raise ProcessLookupError(f"container {wanted.name} is not running")
        if len(attached) != (1 if wanted.tty else 3):
            raise ValueError(f"{len(attached)} descriptors are attached")
        command = ExecTask(container.program._replace(argv=wanted.argv), wanted.tty)
        spaces = self._pod(wanted.pod).sandbox.all_namespaces
        own = {} if self._network.kind == "plain" else isolation.CONTAINER_NAMESPACES
        task = ChildTask(self._context, command=command, namespaces=(*own, *spaces))
        session = ExecSession(wanted.session, container, task, spaces.values(), self._hub)
        try:
            for fd in attached:
                session.owned_fds.append(os.dup(fd))
            for name in own.values():
                session.owned_fds.append(isolation.open_namespace(container.pid, name))
        except OSError:
            session.close_owned()
            raise
        self._hub.sessions.add(session)
        self._zygote.start(session)

    def _attach(self, wanted: Attach, attached: list[int]) -> list[int]:
        container = self._container(wanted.pod, wanted.name)
        if container.has_ended or container.state.state != "running":
            raise ProcessLookupError(f"container {wanted.name} is not running")
        if len(attached) != 1:
            raise ValueError(f"{len(attached)} descriptors are attached")
        return container.attach(os.dup(attached[0]), stdin=wanted.stdin)

    def _add_tmpfs(self, wanted: protocol.AddTmpfs) -> None:
        """Mount it in the shim's own mount namespace, so that its content outlives a container.

        Without namespaces the folder stays an ordinary one.
        """
        pod, path = self._pod(wanted.pod), wanted.path
        if self._network.kind != "plain" and path not in pod.mounts:
            options = f"mode=777,size={wanted.size}" if wanted.size else "mode=777"
            sys.mount("tmpfs", path, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, options)
            pod.mounts.append(path)

    def _signal(self, wanted: protocol.Signal) -> None:
        container = self._container(wanted.pod, wanted.name)
        if wanted.number not in FORWARDED_SIGNALS:
            raise ValueError(f"signal {wanted.number} is not passed on")
        if not container.has_ended:
            container.kill(wanted.number)

    def _kill(self, pod: str, name: str) -> None:
        if pod in self._pods:
            for container in self._pods[pod].containers.values():
                if name in ("", container.state.name):
                    container.kill_tree()

    def _remove(self, pod: str) -> None:
        owner = self._pods.pop(pod, None)
        if owner is None:
            return
        for container in owner.containers.values():
            container.discard()
        for path in owner.mounts:
            sys.umount(path)
        self._egress.pod_removed(owner.sandbox.address)
        self._network.remove_pod(owner.sandbox)

    def _stop(self) -> None:
        self._is_stopping = True
        self._stop_requested = False
        self._relay.stop()
        self._egress.stop()
        self._zygote.close()


# In memory, so that secrets and the like never reach a disk (decision 348).
def _open_files_of_programs(soft: int, hard: int) -> tuple[int, int]:
    """The soft and hard limit of programs: what is allowed, as containers on Kubernetes have it."""
    if hard == resource.RLIM_INFINITY:
        return max(soft, _MOST_OPEN_FILES), hard
    return max(soft, min(hard, _MOST_OPEN_FILES)), hard


def _open_memory(state_dir: str, kind: isolation.Kind) -> int:
    """Make the folder ``wire.MEMORY``; returns a descriptor of it."""
    path = os.path.join(state_dir, wire.MEMORY)
    os.makedirs(path, mode=0o700, exist_ok=True)
    if kind != "plain":
        with contextlib.suppress(OSError):  # then it stays an ordinary folder
            sys.mount("tmpfs", path, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=700")
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def serve(
    state_dir: str,
    mode: str,
    owner: int,
    agent: socket.socket | None,
    listener: socket.socket | None,
    build: str = "",
    lock: socket.socket | None = None,
) -> None:
    """Be the shim, from fork to end. Without ``listener`` it ends with process ``owner``.

    ``build`` as in ``Hello``. ``lock``: a bound socket that says, for as long as the shim lives,
    that its folder has one; who connects learns the shim's process id from the kernel.
    """
    if lock is not None:
        lock.listen()
    sys.set_process_name("trainyard-shim")
    gc.freeze()
    sources = SourceCopy()
    outside = relay_launcher.start(sources) if mode != "plain" else None
    try:
        network = isolation.prepare(mode)
    except OSError as error:
        if agent is not None:
            agent.sendall(wire.encode(protocol.event(protocol.Failed(str(error)))))
            return
        raise
    if outside is not None and network.kind == "plain":
        outside.close()
        outside = None
    if listener is None:
        # Without namespaces the shim has to kill its pods itself when its owner dies.
        sys.die_with_parent(signal.SIGTERM if network.kind == "plain" else signal.SIGKILL)
        if os.getppid() != owner:
            return
    pod_runtime = PodRuntime(state_dir, network, outside, sources, build)
    if agent is not None:
        pod_runtime.attach(agent)
    if lock is not None:
        pod_runtime.answer_who_asks(lock)
    if listener is not None:
        pod_runtime.listen(listener)
    pod_runtime.run()
