"""Runs the embedded cluster together with its controller, in one event loop.

The two are composed here and nowhere else, so that they can only meet by requests of the API.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import uvloop

from trainyard.composition import late_imports
from trainyard.composition.cluster_log import log_to
from trainyard.composition.cluster_shape import ClusterShape
from trainyard.composition.garbage_collection import collect_garbage_again
from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.cluster import Cluster, ClusterSettings, run_cluster
from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle
from trainyard.embedded.scheduler.resource_requests import amount
from trainyard.embedded.tls_files import TlsFiles
from trainyard.kube.unix_transport import UnixTransport
from trainyard.machine.state_folder import Paths
from trainyard.machine.users import AllowList
from trainyard.podruntime.log_files import KUBERNETES, LogLimits
from trainyard.schema.errors import TrainyardError
from trainyard.schema.object_names import fnv1a64

_READY_SECONDS = 30.0
_CHANNEL_PORT = 7443
_FIRST_PLAIN_PORT, _PLAIN_PORTS = 16000, 4000
"""Without namespaces; below the ports that jobs get there (decision 41)."""
_LOG_BYTES = 100 << 20
"""The size of a container's log file in a private cluster, which ends before it fills a disk."""
_log = logging.getLogger(__name__)


def cluster_settings(options: ClusterShape, paths: Paths) -> ClusterSettings:
    """Return the settings of a cluster with these options, whose files are in `paths`."""
    return ClusterSettings(
        paths=paths,
        extension=EXTENSION,
        working_dir=os.getcwd(),
        volumes=options.volumes,
        images=options.images,
        passed=options.passed,
        resources={name: amount(name, text) for name, text in options.resources.items()},
        is_strict=options.is_strict,
        pids_limit=options.pids_limit,
        is_network_open=options.network == "open",
        allowed_ports=options.allowed_ports,
        log_limits=LogLimits(options.log_max_size or KUBERNETES.size, options.log_max_files),
    )


def private_settings(options: ClusterShape, paths: Paths) -> ClusterSettings:
    """Return the settings of a cluster that ends with its process: nothing needs to last."""
    settings = replace(cluster_settings(options, paths), is_durable=False)
    if options.log_max_size is None:
        settings = replace(settings, log_limits=settings.log_limits._replace(size=_LOG_BYTES))
    return settings


@asynccontextmanager
async def cluster_with_controller(
    settings: ClusterSettings,
    pod_runtime: PodRuntimeHandle,
    *,
    separate_controller: bool = False,
    wait_for_controller: bool = True,
) -> AsyncIterator[Cluster]:
    """Run a cluster with its controller for as long as the block lasts.

    With `separate_controller` the controller gets a process of its own. With `wait_for_controller`
    the block begins once the controller has read the cluster; TimeoutError if that takes too long.
    """
    async with run_cluster(settings, pod_runtime) as cluster, asyncio.TaskGroup() as group:
        listener = await _listen(cluster)
        ready = asyncio.Event()
        run = partial(_run_controller, cluster, listener, ready, separate=separate_controller)
        task = group.create_task(cluster.supervisor.keep_running("controller", run))
        late = group.create_task(_import_late(cluster, ready))
        try:
            if wait_for_controller:
                async with asyncio.timeout(_READY_SECONDS):
                    await ready.wait()
            yield cluster
        finally:
            task.cancel()
            late.cancel()
            if listener is not None:
                listener.close()


async def _run_controller(
    cluster: Cluster, listener: socket.socket | None, ready: asyncio.Event, *, separate: bool
) -> None:
    """Run the controller until cancelled.

    It is imported only here, since it is more than half of all that a cluster imports, and the
    cluster is up without it (decision 335).
    """
    gc.disable()  # as commands do while they import
    try:
        from trainyard.composition.controller_process import (
            run_controller,
            run_controller_process,
        )
    finally:
        collect_garbage_again()
    is_plain = _is_plain(cluster)
    if separate:
        await run_controller_process(str(cluster.socket), listener, is_plain=is_plain, ready=ready)
    else:
        transport = UnixTransport(cluster.socket)
        await run_controller(transport, listener, is_plain=is_plain, ready=ready)


async def _import_late(cluster: Cluster, ready: asyncio.Event) -> None:
    await ready.wait()
    run = partial(late_imports.import_all, at_once=cluster.settings.is_durable)
    await cluster.supervisor.keep_running("late imports", run)


def _is_plain(cluster: Cluster) -> bool:
    return cluster.agent.isolation == "plain"


async def _listen(cluster: Cluster) -> socket.socket | None:
    """Listen for reports of pods; None if that cannot be, in which case pods run all the same.

    The port is that of the cluster's last life, whose pods may still run (decision 218).
    """
    port = _CHANNEL_PORT
    if _is_plain(cluster):  # the machine's own ports
        port = (
            _FIRST_PLAIN_PORT + fnv1a64(os.fsencode(cluster.settings.paths.folder)) % _PLAIN_PORTS
        )
    for wanted in (port, 0):
        try:
            return await cluster.agent.open_listener(wanted)
        except TrainyardError as error:
            _log.info("the pods' channel: %s", error)
    return None


def serve(
    paths: Paths,
    options: ClusterShape,
    port: int,
    pod_runtime: PodRuntimeHandle,
    version: str,
    *,
    allowed: AllowList,
    receive_tls: Callable[[], TlsFiles | None],
    on_ready: Callable[[Cluster], None],
    separate_controller: bool = False,
) -> None:
    """Run the background cluster until SIGTERM or SIGINT; call `on_ready` once it answers.

    `receive_tls` waits for the certificates that the command makes meanwhile; None if it makes
    none.
    """
    log_to(sys.stderr)
    pod_runtime.ready()
    collect_garbage_again()
    settings = replace(
        cluster_settings(options, paths),
        allowed=allowed,
        tls_port=port,
        preferred_port=_last_port(paths),
        tls=receive_tls(),
        version=version,
    )
    try:
        uvloop.run(_serve(settings, pod_runtime, on_ready, separate_controller=separate_controller))
    finally:
        pod_runtime.close()


async def _serve(
    settings: ClusterSettings,
    pod_runtime: PodRuntimeHandle,
    on_ready: Callable[[Cluster], None],
    *,
    separate_controller: bool,
) -> None:
    async with cluster_with_controller(
        settings,
        pod_runtime,
        separate_controller=separate_controller,
        wait_for_controller=separate_controller,
    ) as cluster:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        _log.info("ready: %s, port %d, %s", cluster.socket, cluster.port, cluster.agent.isolation)
        if reason := cluster.agent.isolation_reason:
            _log.info("why pods are not better separated: %s", reason)
        on_ready(cluster)
        await ended.wait()
        _log.info("ending")


def _last_port(paths: Paths) -> int:
    """Return the port in the last kubeconfig, so that kubectl goes on working; 0: any."""
    try:
        config = json.loads(paths.kubeconfig.read_text())
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 0
    except (OSError, ValueError, KeyError, IndexError):
        return 0
