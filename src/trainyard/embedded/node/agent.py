"""The node agent: runs the pods that are bound to its node, and serves their logs and commands.

It meets the rest of the cluster through its API only: pods appear there bound to the node, their
status is written there, and a pod that is being deleted is finally removed there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from trainyard.embedded.kubelet_api import Measured
from trainyard.embedded.node.container_runtime import ContainerRuntime, RuntimeRefused
from trainyard.embedded.node.containers import (
    cgroups,
    exec_sessions,
    gpus,
    resource_usage,
    stopped_processes,
)
from trainyard.embedded.node.containers.container_probes import open_connection
from trainyard.embedded.node.containers.observer_folder import ObserverFolder
from trainyard.embedded.node.network import service_forwarding
from trainyard.embedded.node.network.hosts_files import HostsFiles
from trainyard.embedded.node.network.resolving import Announcements
from trainyard.embedded.node.network.service_environment import ServiceLinks
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pods.pod_object import EventWriter, PodObject
from trainyard.embedded.node.pods.pod_resources import Node, forget_old
from trainyard.embedded.node.pods.pod_status import ENDED, observed
from trainyard.embedded.node.pods.pod_worker import PodWorker
from trainyard.embedded.node.pods.unsupported_fields import service_not_honoured
from trainyard.embedded.objects import Objects
from trainyard.embedded.service_supervisor import Fatal, Findings, Guard, batches
from trainyard.embedded.storage.journal import Event
from trainyard.podruntime import logfile, protocol
from trainyard.podruntime.egress.told import SetNetwork
from trainyard.podruntime.logs import LogOptions, has_log, read_log
from trainyard.schema.errors import TrainyardError

_TELL_PASSES, _TELL_SECONDS = 100, 0.02
_PODS_BETWEEN_SWEEPS = 50
_LIMITS_SECONDS = 5.0
_Known = dict[str, protocol.PodState]
_log = logging.getLogger(__name__)


class Tunnel:
    """A TCP connection into a pod; implements ``trainyard.embedded.kubelet_api.Connection``."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    async def read(self, limit: int) -> bytes:
        return await self._loop.sock_recv(self._connection, limit)

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._connection, data)

    async def write_eof(self) -> None:
        self._connection.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        self._connection.close()


class NodeAgent:
    """Implements ``kubelet_api.PodRuntime``. Create it on the event loop's thread."""

    def __init__(
        self,
        api: Objects,
        runtime: ContainerRuntime,
        settings: NodeSettings,
        findings: Findings | None = None,
    ) -> None:
        self._api = api
        self._findings = findings if findings is not None else Findings()
        self._guard: Guard[Event] = Guard("node agent", self._findings)
        self._present: set[str] = set()
        self._ended: set[str] = set()
        self._runtime = runtime
        self._settings = settings
        self._hosts = hosts = HostsFiles(runtime.memory.beneath("hosts"))
        self._events = EventWriter(api, settings.node_name)
        self._groups = cgroups.ClusterGroups(settings.state_dir)
        pool = gpus.Pool(settings.gpus)
        self._links = ServiceLinks()
        shared = (hosts, self._events, pool, self._groups, self._links)
        observer = ObserverFolder(runtime.memory.beneath("observer"))
        self._node = Node(api, runtime, settings, *shared, observer)
        self._workers: dict[str, PodWorker] = {}
        self._services_changed = asyncio.Event()
        self._forwarding = service_forwarding.Forwarding(plain=self.isolation == "plain")
        self._announcements = Announcements(runtime)
        self._meter = resource_usage.Meter()
        self._node_ports: service_forwarding.NodePorts | None = None
        self._pods_since_sweep = 0
        self._pods_folder = os.path.join(settings.state_dir, "pods")
        os.makedirs(self._pods_folder, mode=0o700, exist_ok=True)

    @property
    def isolation(self) -> str:
        """``root``, ``rootless`` or ``plain``: how pods are separated on this machine."""
        return self._runtime.hello.isolation

    @property
    def isolation_reason(self) -> str:
        """Why pods are not better separated; "" when they are in namespaces."""
        return self._runtime.hello.reason

    async def open_listener(self, port: int) -> socket.socket:
        """A socket that listens where all pods reach it; raises RuntimeRefused."""
        return await self._runtime.open_listener(port)

    async def run(self) -> None:
        """Run pods until cancelled. The pods themselves go on, or not, with the shim."""
        known = {pod.pod: pod for pod in self._runtime.hello.pods}
        keep = self._findings.keep
        await self._set_network()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(keep("node events", self._events.run))
                group.create_task(keep("containers", self._follow_runtime))
                group.create_task(keep("services", self._forward_services))
                group.create_task(keep("limits", self._watch_limits))
                self._drop_unknown(group, known)
                await keep("pods", partial(self._follow, group, known))
        finally:
            if self._node_ports is not None:
                await self._node_ports.close()

    # Decision 248.
    async def _set_network(self) -> None:
        """Let pods out, as far as that is wanted and the machine permits it."""
        facts, hello = self._findings.facts, self._runtime.hello
        if hello.isolation == "plain":
            facts["network"] = "machine"
            return
        is_open, ports = self._settings.is_network_open, self._settings.allowed_ports
        facts["network"] = "open" if is_open else "none"
        try:
            await self._runtime.request(SetNetwork(is_open, ports if is_open else ()))
        except RuntimeRefused as error:
            is_open = False
            facts["network"], facts["networkReason"] = "none", str(error)
            _log.warning("pods reach each other and nothing else: %s", error)
        self._hosts.name_server = hello.gateway if is_open else ""

    async def _follow(self, group: asyncio.TaskGroup, known: _Known) -> None:
        """Take up what is bound to this node."""
        subscription = self._api.subscribe("pods", "services", "endpoints")
        self._forwarding = service_forwarding.Forwarding(plain=self.isolation == "plain")
        self._announcements = Announcements(self._runtime)
        self._present = {pod["metadata"]["uid"] for pod in self._api.list("pods")}
        self._forget_old_logs()
        try:
            async for events in batches(subscription, self._guard):
                is_touched = False
                for event in (*self._guard.due(), *events):
                    with self._guard.step(event.object, event):
                        is_touched |= self._forwarding.note(event)
                        if event.resource == "services":
                            self._links.note(event)
                            self._service(event.type, event.object)
                        elif event.resource == "pods":
                            self._pod(group, event, known)
                if is_touched:  # before a pod that was bound just now starts
                    settled = self._forwarding.settle()
                    self._hosts.set_services(settled)
                    if self._hosts.name_server:
                        self._announcements.note(settled)
                    self._services_changed.set()
        finally:
            self._api.unsubscribe(subscription)

    async def shut_down(self) -> None:
        """End every pod process at once, and the shim with them."""
        try:
            await self._runtime.request(protocol.Shutdown())
        except TrainyardError as error:
            _log.debug("shim: %s", error)
        self._runtime.close()
        self._groups.close()

    def _pod(self, group: asyncio.TaskGroup, event: Event, known: _Known) -> None:
        kind, pod, old = event.type, event.object, event.old
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if kind == "DELETED":
            self._present.discard(uid)
            self._ended.discard(uid)
        else:
            self._present.add(uid)
        if worker is not None:
            worker.pod_changed(pod, is_gone=kind == "DELETED")
        elif kind != "DELETED" and pod["spec"].get("nodeName") == self._settings.node_name:
            if uid not in known and _has_ended(pod):
                self._ended.add(uid)
            if uid not in self._ended:
                self._start(group, pod, known)
            elif pod["metadata"].get("deletionTimestamp"):
                ended = PodObject(self._api, self._events, pod)
                group.create_task(self._findings.keep(f"end of {uid}", ended.remove))
            elif not _has_ended(pod) and old is not None and _has_ended(old):
                ended = PodObject(self._api, self._events, pod)
                put_back = partial(ended.put_back, old["status"])
                group.create_task(self._findings.keep(f"status of {uid}", put_back))

    def _start(self, group: asyncio.TaskGroup, pod: dict[str, Any], known: _Known) -> None:
        uid = pod["metadata"]["uid"]
        worker = PodWorker(self._node, pod, known.get(uid))
        known.pop(uid, None)
        self._workers[uid] = worker
        group.create_task(self._work(pod, worker))

    async def _work(self, pod: dict[str, Any], worker: PodWorker) -> None:
        """Run a pod until it has ended, and its status says so, or it is gone."""
        uid = pod["metadata"]["uid"]
        try:
            await self._findings.keep(f"pod {_named(pod)}", worker.run)
        finally:
            del self._workers[uid]
        if uid in self._present:
            self._ended.add(uid)
        self._pods_since_sweep += 1
        if self._pods_since_sweep == _PODS_BETWEEN_SWEEPS:
            self._forget_old_logs()

    def _forget_old_logs(self) -> None:
        self._pods_since_sweep = 0
        forget_old(self._pods_folder, self._present | self._workers.keys())

    def _drop_unknown(self, group: asyncio.TaskGroup, known: _Known) -> None:
        """End the pods that the shim has and the registry no longer, which were deleted while no
        agent ran, and delete what is in memory of pods that are no more."""
        present = {pod["metadata"]["uid"] for pod in self._api.list("pods")}
        forget_old(self._node.memory.here, known.keys() & present, keep=0)
        for uid in known.keys() - present:
            group.create_task(self._findings.keep(f"end of {uid}", partial(self._drop, uid)))

    async def _drop(self, uid: str) -> None:
        await self._runtime.request(protocol.RemovePod(uid))

    async def _follow_runtime(self) -> None:
        while (event := await self._runtime.events.get()) is not None:
            worker = self._workers.get(event.pod)
            if worker is not None:
                with self._guard.step(worker.pod, _looked_at(worker.pod), event.name):
                    worker.container_changed(event)
        for worker in self._workers.values():
            worker.runtime_lost()
        for _ in range(_TELL_PASSES):
            if all(worker.is_told for worker in self._workers.values()):
                break
            await asyncio.sleep(_TELL_SECONDS)
        raise Fatal("the node's shim process is gone, and all pods with it")

    async def _watch_limits(self) -> None:
        while True:
            await asyncio.sleep(_LIMITS_SECONDS)
            firsts = {w: observed(w.runs) for w in self._workers.values()}
            found = await asyncio.to_thread(stopped_processes.look, [*chain(*firsts.values())])
            for worker in self._workers.values():
                worker.allocation.refresh()
                worker.tell_refused_processes()
                ours = (found.get(first, ()) for first in firsts.get(worker, ()))
                worker.tell_stopped(tuple(chain(*ours)))

    async def _forward_services(self) -> None:
        """Keep the relay's table and the resolver's names current; changes that come together are
        told once."""
        told: list[protocol.Forward] = []
        while True:
            await self._services_changed.wait()
            self._services_changed.clear()
            wanted = self._forwarding.wanted()
            if wanted != told:
                told = wanted
                await self._runtime.request(protocol.SetForwards(tuple(wanted)))
            await self._announcements.tell()

    def _service(self, kind: str, service: dict[str, Any]) -> None:
        problem = service_not_honoured(
            service,
            has_resolver=bool(self._hosts.name_server),
            is_plain=self.isolation == "plain",
        )
        if kind == "ADDED" and problem:
            self._events.warn_owner(service, "NotHonoured", problem)
        if self._node_ports is None and any(
            "nodePort" in p for p in service["spec"].get("ports", ())
        ):
            self._node_ports = service_forwarding.NodePorts(
                self._api, self, self._events.warn_owner
            )
        if self._node_ports is not None:
            self._node_ports.changed(kind, service)

    # -- PodRuntime -----------------------------------------------------------------------------

    async def logs(
        self, pod: dict[str, Any], container: str, options: LogOptions, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        attempt = _restarts(pod, container) - (1 if previous else 0)
        path = os.path.join(self._node.folder(pod), container, f"{attempt}.log")
        if not has_log(path):
            what = "previous terminated container" if previous else "container"
            raise TrainyardError(
                f"{what} {container!r} in pod {pod['metadata']['name']!r} has not started: "
                "there is no log yet"
            )
        worker = self._workers.get(pod["metadata"]["uid"])

        def is_over() -> bool:
            return previous or worker is None or worker.is_over(container)

        try:
            async with contextlib.aclosing(read_log(path, options, is_over)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            logfile.drop_oldest(path, self._settings.log_limits)  # what was there for this reader

    async def exec(
        self,
        pod: dict[str, Any],
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> exec_sessions.Session:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        worker = self._workers.get(uid)
        if worker is None or not worker.is_running(container):
            raise TrainyardError(
                f"cannot run a command in container {container!r} of pod {name}: it is not running"
            )
        wanted = exec_sessions.command(uid, container, command, tty=tty)
        return await exec_sessions.Session.start(self._runtime, wanted, stdin=stdin)

    async def attach(
        self, pod: dict[str, Any], container: str, *, stdin: bool = False
    ) -> exec_sessions.Attachment:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        worker = self._workers.get(uid)
        runs = worker.runs if worker is not None else ()
        spec = next((r.spec for r in runs if r.name == container and r.phase == "running"), None)
        if spec is None:
            text = f"cannot attach to container {container!r} of pod {name}: it is not running"
            raise TrainyardError(text)
        return await exec_sessions.Attachment.start(self._runtime, uid, spec, stdin=stdin)

    async def connect(self, pod: dict[str, Any], port: int) -> Tunnel:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        address = pod.get("status", {}).get("podIP", "")
        worker = self._workers.get(uid)
        if worker is None or not any(worker.is_running(run.name) for run in worker.runs):
            raise TrainyardError(f"cannot connect to port {port} of pod {name}: it is not running")
        for host in ("127.0.0.1", address) if self.isolation != "plain" else (address,):
            try:
                return Tunnel(await open_connection(self._runtime, uid, host, port))
            except OSError as error:
                problem = str(error.strerror)
            except TrainyardError as error:  # the pod has ended meanwhile
                problem = str(error)
        raise TrainyardError(f"cannot connect to port {port} of pod {name}: {problem}")

    async def measure(self) -> Measured:
        return await self._meter.measure(
            [
                resource_usage.Running(uid, run.name, run.pid, run.cgroups, run.gpus)
                for uid, worker in self._workers.items()
                for run in worker.runs
                if run.phase == "running" and run.pid
            ]
        )


def _has_ended(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def _named(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def _looked_at(pod: dict[str, Any]) -> Event:
    """A change that only makes the pod's worker look again."""
    return Event("MODIFIED", "pods", pod, None, b"", 0)


def _restarts(pod: dict[str, Any], container: str) -> int:
    status = pod.get("status", {})
    statuses = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    return next((int(s["restartCount"]) for s in statuses if s["name"] == container), 0)
