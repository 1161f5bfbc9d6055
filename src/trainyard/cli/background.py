"""The life of the background cluster, from its first listener to SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

import uvloop

from trainyard.cli.boundary import expected_error
from trainyard.cli.embedded import cluster_settings, embedded
from trainyard.cli.options import ClusterOptions
from trainyard.kube.embedded import Paths, StateError
from trainyard.local.node.shim_process import ShimFailed, ShimHandle
from trainyard.local.tls import TlsFiles

_log = logging.getLogger(__name__)


def serve(
    paths: Paths,
    options: ClusterOptions,
    port: int,
    shim: ShimHandle,
    *,
    tls: Callable[[], TlsFiles | None],
    on_ready: Callable[[], None],
) -> None:
    """Run the cluster until SIGTERM or SIGINT; `on_ready` is called once it answers.

    `tls` waits for the certificates that the command makes meanwhile; None if it does not.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        shim.ready()
    except ShimFailed as error:
        raise StateError(str(error)) from error
    gc.freeze()
    gc.enable()
    try:
        uvloop.run(_serve(paths, options, port, shim, tls(), on_ready))
    except BaseExceptionGroup as group:
        expected = expected_error(group)
        raise (expected or group) from None
    finally:
        shim.kill()


async def _serve(
    paths: Paths,
    options: ClusterOptions,
    port: int,
    shim: ShimHandle,
    tls: TlsFiles | None,
    on_ready: Callable[[], None],
) -> None:
    settings = replace(
        cluster_settings(options, paths),
        tls_port=port,
        preferred_port=_last_port(paths),
        tls=tls,
    )
    async with embedded(settings, shim) as cluster:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        _log.info("ready: %s, port %d, %s", cluster.socket, cluster.port, cluster.agent.isolation)
        on_ready()
        await ended.wait()
        _log.info("ending")


def _last_port(paths: Paths) -> int:
    """The port in the kubeconfig of the cluster's last life, so that kubectl goes on working."""
    try:
        config = json.loads(paths.kubeconfig.read_text())
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 0
    except (OSError, ValueError, KeyError, IndexError):
        return 0
