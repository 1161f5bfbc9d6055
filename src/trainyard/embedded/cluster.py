"""The embedded cluster in one process: store, registry, API server, scheduler and node agent.

There is no controller here: it meets the cluster over HTTP, and whoever starts the cluster starts
a controller beside it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.embedded.api_server import ApiServer, ServeError
from trainyard.embedded.apiserver.auth.request_identity import Authenticator
from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_extension import NO_EXTENSION, Extension
from trainyard.embedded.controllers.endpoint_controller import EndpointController
from trainyard.embedded.controllers.housekeeping import Housekeeping
from trainyard.embedded.controllers.queue_controller import QueueController
from trainyard.embedded.controllers.taint_eviction import TaintEviction
from trainyard.embedded.node.agent import NodeAgent
from trainyard.embedded.node.containers.cgroups import default_pids_limit
from trainyard.embedded.node.containers.container_environment import image_environment
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle
from trainyard.embedded.node.pods.pod_object import EventWriter
from trainyard.embedded.node.volumes import host_folders
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.resource_table import Resources
from trainyard.embedded.scheduler import machine_capacity, resource_requests
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings
from trainyard.embedded.service_supervisor import Supervisor
from trainyard.embedded.tls_files import TlsFiles, ensure_token, make_kubeconfig, write_kubeconfig
from trainyard.embedded.user_tokens import UserTokens
from trainyard.kube.errors import AlreadyExists
from trainyard.kube.resources import NODES
from trainyard.machine import interpreters, rlimits
from trainyard.machine.state_folder import Paths, RunningCluster, node_name
from trainyard.machine.users import NOBODY_ELSE, AllowList
from trainyard.podruntime.log_files import KUBERNETES, LogLimits
from trainyard.schema.dataclass import dataclass
from trainyard.version import VERSION

if TYPE_CHECKING:
    from trainyard.embedded.storage.store import Store

_MASTER_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How one embedded cluster behaves."""

    paths: Paths
    extension: Extension = NO_EXTENSION
    """What the cluster serves and honours beyond Kubernetes' core."""
    is_durable: bool = True
    """Keep objects on disk; a cluster that ends with its job need not."""
    working_dir: str = ""
    """Where containers run whose pod does not say."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Claim name to the folder that stands for it."""
    images: tuple[tuple[str, str], ...] = ()
    """Image pattern and the virtual environment that stands for it."""
    passed: tuple[str, ...] = ()
    """Names and patterns of variables that containers have of this process's, beside the usual."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Resources to pretend, or to pretend less of."""
    is_strict: bool = False
    """Schedule to the letter of the manifest."""
    log_limits: LogLimits = KUBERNETES
    """Of each container's log."""
    pids_limit: int | None = None
    """Processes and threads that a container may have; None: what the machine has room for."""
    is_network_open: bool = True
    """Pods reach what the machine reaches."""
    allowed_ports: tuple[int, ...] = ()
    """Of the machine's loopback, which pods reach too."""
    allowed: AllowList = NOBODY_ELSE
    """Who besides its owner may use it."""
    tls_port: int | None = None
    """Listen for kubectl on this loopback port (0: any); None: only on the Unix socket."""
    preferred_port: int = 0
    """Where `tls_port` is 0: try this one first."""
    tls: TlsFiles | None = None
    """Certificates that are known to be good; None: look for them or make them."""
    version: str = ""
    """Which trainyard this is, for the record (`installed_version`)."""

    def as_json(self) -> dict[str, Any]:
        """The settings that a user may have chosen, as JSON for the cluster's record."""
        return {
            "working_dir": self.working_dir,
            "volumes": dict(self.volumes),
            "images": [list(pair) for pair in self.images],
            "passed": list(self.passed),
            "resources": dict(self.resources),
            "is_strict": self.is_strict,
            "pids_limit": self.pids_limit,
            "is_network_open": self.is_network_open,
            "allowed_ports": list(self.allowed_ports),
            "log_size": self.log_limits.size,
            "log_files": self.log_limits.files,
            "users": sorted(self.allowed.users),
            "groups": sorted(self.allowed.groups),
        }


class Cluster:
    """A cluster that runs, until `run_cluster`'s block is left."""

    def __init__(
        self,
        settings: ClusterSettings,
        registry: Registry,
        agent: NodeAgent,
        server: ApiServer,
        supervisor: Supervisor,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.agent = agent
        self.server = server
        self.supervisor = supervisor
        self.port = 0

    @property
    def socket(self) -> Path:
        """Where the API server listens."""
        return self.settings.paths.api_socket


@asynccontextmanager
async def run_cluster(
    settings: ClusterSettings, pod_runtime: PodRuntimeHandle
) -> AsyncIterator[Cluster]:
    """Run a cluster for as long as the block lasts; leaving it in order ends every pod's processes.

    Where it cannot start, or fails, they go on with a shim that lasts, for the next cluster.
    """
    rlimits.raise_open_files()
    paths = settings.paths
    registry = Registry(
        _store(paths) if settings.is_durable else None,
        resources=Resources(extension=settings.extension),
    )
    server: ApiServer | None = None
    agent: NodeAgent | None = None
    try:
        found = machine_capacity.detect(paths.folder, settings.resources)
        name = node_name()
        events = EventWriter(registry, name)
        supervisor = Supervisor(events.warn)
        node_settings = _node_settings(settings, name, found)
        agent = NodeAgent(registry, PodRuntimeClient(pod_runtime), node_settings, supervisor)
        supervisor.facts["isolationReason"] = agent.isolation_reason
        server = ApiServer(registry, agent, _cluster_users(settings, agent.isolation), supervisor)
        cluster = Cluster(settings, registry, agent, server, supervisor)
        await registry.ensure_system_objects()
        await _register_node(registry, name, found)
        await server.serve_unix(paths.api_socket)
        if settings.tls_port is not None:
            cluster.port = await _serve_tls(server, settings)
        scheduling = SchedulerSettings(name, found, settings.is_strict, settings.extension)
        async with asyncio.TaskGroup() as group:
            services = _services(registry, agent, scheduling, supervisor) | {"events": events.run}
            tasks = [
                group.create_task(supervisor.keep_running(title, run))
                for title, run in services.items()
            ]
            _write_record(cluster, node_settings)
            try:
                pod_runtime.keeps_pods = pod_runtime.lasts
                yield cluster
                pod_runtime.keeps_pods = False
            finally:
                for task in tasks:
                    task.cancel()
    finally:
        with suppress(OSError):
            paths.record.unlink(missing_ok=True)
        if agent is not None and agent.has_lost_pods:
            pod_runtime.keeps_pods = False
        if agent is not None and pod_runtime.keeps_pods:
            agent.leave()
        elif agent is not None:
            await agent.shut_down()
        if server is not None:
            await server.close()
        await registry.close()


def _write_record(cluster: Cluster, node_settings: NodeSettings) -> None:
    settings, agent = cluster.settings, cluster.agent
    RunningCluster(
        os.getpid(),
        str(cluster.socket),
        cluster.port,
        time.time(),
        agent.isolation,
        interpreters.find_interpreter(image_environment("", node_settings)) or "",
        settings.as_json(),
        settings.version,
        agent.hello.build,
        _formats(settings) | {"wire": agent.hello.version},
    ).write(settings.paths)


def _formats(settings: ClusterSettings) -> dict[str, int]:
    if not settings.is_durable:
        return {}
    from trainyard.embedded.storage.store import FORMAT

    return {"store": FORMAT}


def _store(paths: Paths) -> Store:
    from trainyard.embedded.storage.store import Store  # a cluster that keeps nothing needs none

    return Store(paths.database)


def _services(
    registry: Registry, agent: NodeAgent, scheduling: SchedulerSettings, supervisor: Supervisor
) -> dict[str, Callable[[], Awaitable[None]]]:
    """The services of a cluster, by name; each can be restarted."""
    services: dict[str, Callable[[], Awaitable[None]]] = {
        "scheduler": lambda: Scheduler(registry, scheduling, supervisor).run(),
        "node agent": agent.run,
        "housekeeping": lambda: Housekeeping(registry, supervisor).run(),
        "endpoints": lambda: EndpointController(registry, supervisor).run(),
        "taints": lambda: TaintEviction(registry, supervisor).run(),
        "store backup": registry.keep_backup,
    }
    if scheduling.extension.queues is not None:
        services["queues"] = lambda: QueueController(
            registry, scheduling.extension, supervisor
        ).run()
    return services


def _node_settings(settings: ClusterSettings, name: str, found: Capacity) -> NodeSettings:
    return NodeSettings(
        node_name=name,
        state_dir=str(settings.paths.folder),
        images=settings.images,
        volumes=settings.volumes,
        working_dir=settings.working_dir,
        hidden=host_folders.cluster_folders(),
        passed=settings.passed,
        log_limits=settings.log_limits,
        pids_limit=default_pids_limit() if settings.pids_limit is None else settings.pids_limit,
        gpus=found.gpus,
        is_network_open=settings.is_network_open,
        allowed_ports=settings.allowed_ports,
        scheduler_names=settings.extension.scheduler_names,
        internal_mount_paths=settings.extension.internal_mount_paths,
    )


def _cluster_users(settings: ClusterSettings, isolation: str) -> Authenticator:
    if not any(settings.allowed):
        return Authenticator()
    if isolation != "root":
        raise ServeError(
            f"others cannot share a cluster with isolation {isolation}: their pods could not be "
            "kept apart; leave out --allow-user and --allow-group, or permit namespaces to root"
        )
    return Authenticator(settings.allowed, UserTokens(settings.paths.tokens))


async def _serve_tls(server: ApiServer, settings: ClusterSettings) -> int:
    paths = settings.paths
    made = settings.tls
    if made is None:
        from trainyard.embedded.apiserver.auth import certificates  # imports a slow library

        made = certificates.ensure(paths.certificates)
    token = ensure_token(paths.token)
    serve = partial(server.serve_tls, certificate=made.certificate, key=made.key, token=token)
    try:
        chosen = await serve(settings.tls_port or settings.preferred_port)
    except ServeError:
        if settings.tls_port or not settings.preferred_port:
            raise
        chosen = await serve(0)
    config = make_kubeconfig(port=chosen, authority=made.authority, token=token)
    write_kubeconfig(paths.kubeconfig, config)
    server.serve_kubeconfigs(chosen, made.authority, token)
    return chosen


def _labels(name: str) -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine,
    }


async def _register_node(registry: Registry, name: str, found: Capacity) -> None:
    """Create the Node, or bring the one of an earlier life up to date."""
    status = _node_status(name, found)
    metadata = {"name": name, "labels": _labels(name)}
    await registry.remove_corrupt(NODES.full_name, "", name)
    with suppress(AlreadyExists):
        await registry.create(NODES.full_name, {"metadata": metadata, "spec": {}, "status": status})
        return
    resource = NODES.full_name
    await registry.update(
        resource, "", name, lambda node: {**node, "status": status}, subresource="status"
    )


def _node_status(name: str, found: Capacity) -> dict[str, Any]:
    amounts = {
        key: resource_requests.format_amount(key, value) for key, value in found.amounts.items()
    }
    now = now_text()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the node agent runs",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [
            {"type": "InternalIP", "address": _MASTER_ADDRESS},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [ready],
        "nodeInfo": {
            "architecture": _labels(name)["kubernetes.io/arch"],
            "kernelVersion": platform.release(),
            "operatingSystem": "linux",
            "osImage": "Linux",
            "kubeletVersion": f"v1.33.0+trainyard-{VERSION}",
            "containerRuntimeVersion": f"trainyard://{VERSION}",
            **dict.fromkeys(("kubeProxyVersion", "machineID", "systemUUID", "bootID"), ""),
        },
    }
