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

from trainyard.embedded.cluster_objects import Objects
from trainyard.embedded.kubelet_api import UsageSample
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
from trainyard.embedded.node.network import node_ports, service_forwarding
from trainyard.embedded.node.network.hosts_files import HostsFiles
from trainyard.embedded.node.network.service_environment import ServiceEnvironment
from trainyard.embedded.node.network.service_forwarding import ResolverUpdates
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pods.pod_object import EventWriter, PodObject
from trainyard.embedded.node.pods.pod_resources import NodeContext, delete_old_folders
from trainyard.embedded.node.pods.pod_status import ENDED, observed_pids
from trainyard.embedded.node.pods.pod_worker import PodWorker
from trainyard.embedded.node.pods.unsupported_fields import unsupported_in_service
from trainyard.embedded.service_supervisor import FatalError, RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Event
from trainyard.podruntime import log_files, protocol
from trainyard.podruntime.log_reader import LogOptions, has_log, read_log
from trainyard.podruntime.protocol import SetNetwork
from trainyard.schema.errors import TrainyardError

_STATUS_WAIT_ATTEMPTS, _STATUS_WAIT_SECONDS = 100, 0.02
_PODS_BETWEEN_CLEANUPS = 50
_CHECK_SECONDS = 5.0
_NETWORK_SECONDS = 20.0
_RuntimePods = dict[str, protocol.PodState]
_log = logging.getLogger(__name__)


class PodTunnel:
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
    """Implements ``kubelet_api.KubeletApi``. Create it on the event loop's thread."""

    def __init__(
        self,
        api: Objects,
        runtime: ContainerRuntime,
        settings: NodeSettings,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._api = api
        self._supervisor = supervisor if supervisor is not None else Supervisor()
        self._guard: RetryGuard[Event] = RetryGuard("node agent", self._supervisor)
        self._present: set[str] = set()
        self._ended: set[str] = set()
        self._runtime = runtime
        self._settings = settings
        self._hosts = hosts = HostsFiles(runtime.runtime_folder.child("hosts"))
        self._events = EventWriter(api, settings.node_name)
        self._groups = cgroups.ClusterGroups(settings.state_dir)
        pool = gpus.GpuPool(settings.gpus)
        self._service_environment = ServiceEnvironment()
        shared = (hosts, self._events, pool, self._groups, self._service_environment)
        observer = ObserverFolder(runtime.runtime_folder.child("observer"))
        self._node = NodeContext(api, runtime, settings, *shared, observer)
        self._workers: dict[str, PodWorker] = {}
        self._services_changed = asyncio.Event()
        self._forwarding = service_forwarding.ServiceForwarding(plain=self.isolation == "plain")
        self._resolver_updates = ResolverUpdates(runtime)
        self._meter = resource_usage.UsageMeter()
        self._node_ports: node_ports.NodePorts | None = None
        self._pods_since_cleanup = 0
        self.has_lost_pods = False
        """Whether the pod runtime has ended, and all pods with it."""
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

    @property
    def hello(self) -> protocol.Hello:
        """What the pod runtime says of itself."""
        return self._runtime.hello

    async def open_listener(self, port: int) -> socket.socket:
        """A socket that listens where all pods reach it; raises RuntimeRefused."""
        return await self._runtime.open_listener(port)

    async def run(self) -> None:
        """Run pods until cancelled. The pods themselves go on, or not, with the shim."""
        known = {pod.pod: pod for pod in self._runtime.hello.pods}
        keep = self._supervisor.keep_running
        await self._open_network()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(keep("node events", self._events.run))
                group.create_task(keep("containers", self._watch_runtime))
                group.create_task(keep("services", self._forward_services))
                group.create_task(keep("network", self._watch_network))
                group.create_task(keep("limits", self._check_containers))
                self._remove_orphaned_pods(group, known)
                await keep("pods", partial(self._watch_objects, group, known))
        finally:
            if self._node_ports is not None:
                await self._node_ports.close()

    async def _open_network(self) -> None:
        """Give pods a way to the outside, if wanted and possible here (decision 248)."""
        if self.isolation == "plain":
            self._supervisor.facts["network"] = "machine"
            return
        reason = await self._set_network()
        is_open = self._settings.is_network_open and not reason
        self._hosts.name_server = self._runtime.hello.gateway if is_open else ""

    async def _set_network(self) -> str:
        """Have the way to the outside as it is wanted; returns why it is closed all the same."""
        facts = self._supervisor.facts
        is_open, ports = self._settings.is_network_open, self._settings.allowed_ports
        facts["network"] = "open" if is_open else "none"
        try:
            await self._runtime.request(SetNetwork(is_open, ports if is_open else ()))
        except RuntimeRefused as error:
            facts["network"], facts["networkReason"] = "none", str(error)
            _log.warning("pods reach each other and nothing else: %s", error)
            return str(error)
        return ""

    async def _watch_network(self) -> None:
        """Notice when the way to the outside is gone, until it is."""
        while self._supervisor.facts.get("network") == "open":
            await asyncio.sleep(_NETWORK_SECONDS)
            await self._set_network()

    async def _watch_objects(self, group: asyncio.TaskGroup, known: _RuntimePods) -> None:
        """Follow pods, Services and Endpoints, and start a worker for each pod bound here."""
        subscription = self._api.subscribe("pods", "services", "endpoints")
        self._forwarding = service_forwarding.ServiceForwarding(plain=self.isolation == "plain")
        self._resolver_updates = ResolverUpdates(self._runtime)
        self._present = {pod["metadata"]["uid"] for pod in self._api.list("pods")}
        self._delete_old_pod_folders()
        try:
            async for events in event_batches(subscription, self._guard):
                is_touched = False
                for event in (*self._guard.due_retries(), *events):
                    with self._guard.step(event.object, event):
                        is_touched |= self._forwarding.observe(event)
                        if event.resource == "services":
                            self._service_environment.observe(event)
                            self._service_changed(event.type, event.object)
                        elif event.resource == "pods":
                            self._pod_changed(group, event, known)
                if is_touched:  # before a pod that was bound just now starts
                    settled = self._forwarding.take_changed_names()
                    self._hosts.set_services(settled)
                    if self._hosts.name_server:
                        self._resolver_updates.observe(settled)
                    self._services_changed.set()
        finally:
            self._api.unsubscribe(subscription)

    def leave(self) -> None:
        """Leave the pods, which go on, to the next agent."""
        self._runtime.close()

    async def shut_down(self) -> None:
        """End every pod process at once, and the shim with them."""
        try:
            await self._runtime.request(protocol.Shutdown())
        except TrainyardError as error:
            _log.debug("shim: %s", error)
        self._runtime.close()
        self._groups.close()

    def _pod_changed(self, group: asyncio.TaskGroup, event: Event, known: _RuntimePods) -> None:
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
                self._start_worker(group, pod, known)
            elif pod["metadata"].get("deletionTimestamp"):
                ended = PodObject(self._api, self._events, pod)
                group.create_task(self._supervisor.keep_running(f"end of {uid}", ended.remove))
            elif not _has_ended(pod) and old is not None and _has_ended(old):
                ended = PodObject(self._api, self._events, pod)
                put_back = partial(ended.restore_status, old["status"])
                group.create_task(self._supervisor.keep_running(f"status of {uid}", put_back))

    def _start_worker(
        self, group: asyncio.TaskGroup, pod: dict[str, Any], known: _RuntimePods
    ) -> None:
        uid = pod["metadata"]["uid"]
        worker = PodWorker(self._node, pod, known.get(uid))
        known.pop(uid, None)
        self._workers[uid] = worker
        group.create_task(self._run_worker(pod, worker))

    async def _run_worker(self, pod: dict[str, Any], worker: PodWorker) -> None:
        """Run a pod until it has ended, and its status says so, or it is gone."""
        uid = pod["metadata"]["uid"]
        try:
            await self._supervisor.keep_running(f"pod {_pod_key(pod)}", worker.run)
        finally:
            del self._workers[uid]
        if uid in self._present:
            self._ended.add(uid)
        self._pods_since_cleanup += 1
        if self._pods_since_cleanup == _PODS_BETWEEN_CLEANUPS:
            self._delete_old_pod_folders()

    def _delete_old_pod_folders(self) -> None:
        self._pods_since_cleanup = 0
        delete_old_folders(self._pods_folder, self._present | self._workers.keys())

    def _remove_orphaned_pods(self, group: asyncio.TaskGroup, known: _RuntimePods) -> None:
        """Remove pods, and their folders, that were deleted while no agent ran."""
        present = {pod["metadata"]["uid"] for pod in self._api.list("pods")}
        delete_old_folders(self._node.pods_folder.path, known.keys() & present, keep=0)
        for uid in known.keys() - present:
            group.create_task(
                self._supervisor.keep_running(
                    f"end of {uid}", partial(self._remove_orphaned_pod, uid)
                )
            )

    async def _remove_orphaned_pod(self, uid: str) -> None:
        await self._runtime.request(protocol.RemovePod(uid))

    async def _watch_runtime(self) -> None:
        while (event := await self._runtime.events.get()) is not None:
            worker = self._workers.get(event.pod)
            if worker is not None:
                with self._guard.step(worker.pod, _requeue_event(worker.pod), event.name):
                    worker.container_changed(event)
        for worker in self._workers.values():
            worker.runtime_gone()
        for _ in range(_STATUS_WAIT_ATTEMPTS):
            if all(worker.is_end_written for worker in self._workers.values()):
                break
            await asyncio.sleep(_STATUS_WAIT_SECONDS)
        self.has_lost_pods = True
        raise FatalError("the node's shim process is gone, and all pods with it")

    async def _check_containers(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            firsts = {w: observed_pids(w.runs) for w in self._workers.values()}
            found = await asyncio.to_thread(
                stopped_processes.find_stopped_processes, [*chain(*firsts.values())]
            )
            for worker in self._workers.values():
                worker.resources.refresh_volumes()
                worker.report_pids_limit()
                ours = (found.get(first, ()) for first in firsts.get(worker, ()))
                worker.set_stopped_processes(tuple(chain(*ours)))

    async def _forward_services(self) -> None:
        """Keep the relay's table and the resolver's names current, one request for a burst."""
        sent: list[protocol.Forward] = []
        while True:
            await self._services_changed.wait()
            self._services_changed.clear()
            wanted = self._forwarding.forwards()
            if wanted != sent:
                sent = wanted
                await self._runtime.request(protocol.SetForwards(tuple(wanted)))
            await self._resolver_updates.send()

    def _service_changed(self, kind: str, service: dict[str, Any]) -> None:
        problem = unsupported_in_service(
            service,
            has_resolver=bool(self._hosts.name_server),
            is_plain=self.isolation == "plain",
        )
        if kind == "ADDED" and problem:
            self._events.warn_owner(service, "NotHonoured", problem)
        if self._node_ports is None and any(
            "nodePort" in p for p in service["spec"].get("ports", ())
        ):
            self._node_ports = node_ports.NodePorts(self._api, self, self._events.warn_owner)
        if self._node_ports is not None:
            self._node_ports.changed(kind, service)

    # -- KubeletApi -----------------------------------------------------------------------------

    async def logs(
        self, pod: dict[str, Any], container: str, options: LogOptions, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        attempt = _restart_count(pod, container) - (1 if previous else 0)
        path = os.path.join(self._node.folder(pod), container, f"{attempt}.log")
        if not has_log(path):
            what = "previous terminated container" if previous else "container"
            raise TrainyardError(
                f"{what} {container!r} in pod {pod['metadata']['name']!r} has not started: "
                "there is no log yet"
            )
        worker = self._workers.get(pod["metadata"]["uid"])

        def is_over() -> bool:
            return previous or worker is None or worker.has_log_ended(container)

        try:
            async with contextlib.aclosing(read_log(path, options, is_over)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            # What was kept only because this reader had not come to it.
            log_files.drop_oldest(path, self._settings.log_limits)

    async def exec(
        self,
        pod: dict[str, Any],
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> exec_sessions.CommandSession:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        worker = self._workers.get(uid)
        if worker is None or not worker.is_running(container):
            raise TrainyardError(
                f"cannot run a command in container {container!r} of pod {name}: it is not running"
            )
        wanted = exec_sessions.new_command(uid, container, command, tty=tty)
        return await exec_sessions.CommandSession.start(self._runtime, wanted, stdin=stdin)

    async def attach(
        self, pod: dict[str, Any], container: str, *, stdin: bool = False
    ) -> exec_sessions.AttachSession:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        worker = self._workers.get(uid)
        runs = worker.runs if worker is not None else ()
        spec = next((r.spec for r in runs if r.name == container and r.phase == "running"), None)
        if spec is None:
            text = f"cannot attach to container {container!r} of pod {name}: it is not running"
            raise TrainyardError(text)
        return await exec_sessions.AttachSession.start(self._runtime, uid, spec, stdin=stdin)

    async def connect(self, pod: dict[str, Any], port: int) -> PodTunnel:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        address = pod.get("status", {}).get("podIP", "")
        worker = self._workers.get(uid)
        if worker is None or not any(worker.is_running(run.name) for run in worker.runs):
            raise TrainyardError(f"cannot connect to port {port} of pod {name}: it is not running")
        for host in ("127.0.0.1", address) if self.isolation != "plain" else (address,):
            try:
                return PodTunnel(await open_connection(self._runtime, uid, host, port))
            except OSError as error:
                problem = str(error.strerror)
            except TrainyardError as error:  # the pod has ended in the meantime
                problem = str(error)
        raise TrainyardError(f"cannot connect to port {port} of pod {name}: {problem}")

    async def measure(self) -> UsageSample:
        return await self._meter.measure(
            [
                resource_usage.RunningContainer(uid, run.name, run.pid, run.cgroups, run.gpus)
                for uid, worker in self._workers.items()
                for run in worker.runs
                if run.phase == "running" and run.pid
            ]
        )


def _has_ended(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def _pod_key(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def _requeue_event(pod: dict[str, Any]) -> Event:
    """An event that only makes the pod's worker reconcile again."""
    return Event("MODIFIED", "pods", pod, None, b"", 0)


def _restart_count(pod: dict[str, Any], container: str) -> int:
    status = pod.get("status", {})
    statuses = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    return next((int(s["restartCount"]) for s in statuses if s["name"] == container), 0)
