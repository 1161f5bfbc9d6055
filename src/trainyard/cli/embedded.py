"""The embedded cluster as the user wants it, together with its controller, in one event loop:
for a while, or as the background cluster until SIGTERM.

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

from trainyard.api.shape import ClusterShape
from trainyard.cli.garbage import collect_garbage_again
from trainyard.cli.log import log_to
from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.cluster import Cluster, ClusterSettings, run_cluster
from trainyard.embedded.node.shim_process import ShimHandle
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
_FIRST_PORT, _PORTS = 16000, 4000
"""Below those that jobs get without namespaces (decision 41)."""
_LOG_BYTES = 100 << 20
"""Of a file of a container's log: a cluster of one's own ends before it can fill a disk."""
_log = logging.getLogger(__name__)


def cluster_settings(options: ClusterShape, paths: Paths) -> ClusterSettings:
    """What the user's options mean for a cluster whose files are in `paths`."""
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
    """The same for a cluster that ends with those for whom it is: nothing needs to last."""
    settings = replace(cluster_settings(options, paths), is_durable=False)
    if options.log_max_size is None:
        settings = replace(settings, log_limits=settings.log_limits._replace(size=_LOG_BYTES))
    return settings


@asynccontextmanager
async def embedded(
    settings: ClusterSettings, shim: ShimHandle, *, is_apart: bool = False, waits: bool = True
) -> AsyncIterator[Cluster]:
    """A cluster with its controller, for as long as the block lasts, which begins once that has
    read the cluster unless it `waits` not; `is_apart`: it is a process of its own."""
    async with run_cluster(settings, shim) as cluster, asyncio.TaskGroup() as group:
        end = await _listen(cluster)
        ready = asyncio.Event()
        run = partial(_control, cluster, end, ready, is_apart=is_apart)
        task = group.create_task(cluster.supervisor.keep_running("controller", run))
        try:
            if waits:
                async with asyncio.timeout(_READY_SECONDS):
                    await ready.wait()
            yield cluster
        finally:
            task.cancel()
            if end is not None:
                end.close()


# Decisions 335 and 356.
async def _control(
    cluster: Cluster, end: socket.socket | None, ready: asyncio.Event, *, is_apart: bool
) -> None:
    """Look after the cluster's jobs until cancelled. What that takes is imported here: it is more
    than half of all that a cluster imports, and not needed to be up."""
    gc.disable()  # as commands do while they import
    try:
        from trainyard.cli.controlling import control, control_apart
    finally:
        collect_garbage_again()
    is_plain = _is_plain(cluster)
    if is_apart:
        await control_apart(str(cluster.socket), end, is_plain=is_plain, ready=ready)
    else:
        await control(UnixTransport(cluster.socket), end, is_plain=is_plain, ready=ready)


def _is_plain(cluster: Cluster) -> bool:
    return cluster.agent.isolation == "plain"


# Decision 218.
async def _listen(cluster: Cluster) -> socket.socket | None:
    """Where pods reach the controller, at the same place as in the cluster's last life; None: they
    do not, and run all the same."""
    port = _CHANNEL_PORT
    if _is_plain(cluster):  # the machine's own ports
        port = _FIRST_PORT + fnv1a64(os.fsencode(cluster.settings.paths.folder)) % _PORTS
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
    shim: ShimHandle,
    *,
    allowed: AllowList,
    tls: Callable[[], TlsFiles | None],
    on_ready: Callable[[Cluster], None],
    is_apart: bool = False,
) -> None:
    """Run the cluster until SIGTERM or SIGINT; `on_ready` is called with it once it answers.

    `tls` waits for the certificates that the command makes meanwhile; None if it does not.
    """
    log_to(sys.stderr)
    shim.ready()
    collect_garbage_again()
    settings = replace(
        cluster_settings(options, paths),
        allowed=allowed,
        tls_port=port,
        preferred_port=_last_port(paths),
        tls=tls(),
    )
    try:
        uvloop.run(_serve(settings, shim, on_ready, is_apart=is_apart))
    finally:
        shim.kill()


async def _serve(
    settings: ClusterSettings,
    shim: ShimHandle,
    on_ready: Callable[[Cluster], None],
    *,
    is_apart: bool,
) -> None:
    async with embedded(settings, shim, is_apart=is_apart, waits=is_apart) as cluster:
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
    """The port in the kubeconfig of the cluster's last life, so that kubectl goes on working."""
    try:
        config = json.loads(paths.kubeconfig.read_text())
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 0
    except (OSError, ValueError, KeyError, IndexError):
        return 0
