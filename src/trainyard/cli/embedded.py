"""The embedded cluster as the user wants it, together with its controller, in one event loop.

The two are composed here and nowhere else, so that they can only meet over HTTP.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.cli.options import ClusterOptions
from trainyard.kinds.shared.settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.embedded import Paths
from trainyard.local.cluster import Cluster, ClusterSettings, running
from trainyard.local.node.shim_process import ShimHandle
from trainyard.local.scheduler.requests import amount
from trainyard.operator import controller
from trainyard.operator.settings import OperatorSettings

_READY_SECONDS = 30.0


def cluster_settings(options: ClusterOptions, paths: Paths) -> ClusterSettings:
    """What the user's options mean for a cluster whose files are in `paths`."""
    return ClusterSettings(
        paths=paths,
        working_dir=os.getcwd(),
        volumes=options.volumes,
        images=options.images,
        resources={name: amount(name, text) for name, text in options.resources.items()},
        is_strict=options.is_strict,
    )


@asynccontextmanager
async def embedded(settings: ClusterSettings, shim: ShimHandle) -> AsyncIterator[Cluster]:
    """A cluster whose controller has started, for as long as the block lasts."""
    async with (
        running(settings, shim) as cluster,
        Client.unix(cluster.socket) as client,
        asyncio.TaskGroup() as group,
    ):
        is_plain = cluster.agent.isolation == "plain"
        operator_settings = OperatorSettings(lifecycle=Settings.local(plain_processes=is_plain))
        ready = asyncio.Event()
        task = group.create_task(controller.run(client, operator_settings, ready=ready))
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await ready.wait()
            yield cluster
        finally:
            task.cancel()
