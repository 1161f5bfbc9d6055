"""A cluster of one process, which ends with it: that of `trainyard run`, or of an API client.

Imports nothing heavy before the shim is started, so that the shim stays small.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainyard.composition.cluster_shape import ClusterShape
from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle, start_pod_runtime
from trainyard.machine import rlimits
from trainyard.machine.state_folder import Paths, find_cluster, state_folder

if TYPE_CHECKING:
    from trainyard.embedded.cluster import Cluster

_KEPT_RUNS = 20


class PrivateHost(NamedTuple):
    """Where a private cluster runs: its folder, and the shim that was started for it."""

    shape: ClusterShape
    paths: Paths
    pod_runtime: PodRuntimeHandle

    def cluster(self) -> AbstractAsyncContextManager[Cluster]:
        """Run the cluster with its controller for as long as the block lasts."""
        return _cluster(self)


@contextmanager
def private_host(shape: ClusterShape) -> Iterator[PrivateHost]:
    """Make a folder of its own for a cluster, and start its shim, which ends with the block.

    The folders of the last twenty clusters are kept for their logs (decision 67). Raises
    TrainyardError when the limits of this user do not allow a cluster.
    """
    rlimits.check_rlimits()
    state = Paths(state_folder())
    state.check_kinds()
    state.check_formats()
    paths = Paths(state.runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    paths.prepare()
    pod_runtime = start_pod_runtime(paths.folder, isolation=shape.isolation, die_with_parent=True)
    removing = threading.Thread(target=_remove_old_runs, args=(state.runs,))
    removing.start()  # while the caller imports
    try:
        yield PrivateHost(shape, paths, pod_runtime)
    finally:
        pod_runtime.kill()
        removing.join()


def _remove_old_runs(runs: Path) -> None:
    for run in sorted(runs.iterdir())[:-_KEPT_RUNS]:
        if find_cluster(run) is None:
            from trainyard.embedded.node.volumes import tree_removal

            tree_removal.remove(str(run))


@asynccontextmanager
async def _cluster(host: PrivateHost) -> AsyncIterator[Cluster]:
    from trainyard.composition.embedded_cluster import cluster_with_controller, private_settings

    settings = private_settings(host.shape, host.paths)
    async with cluster_with_controller(settings, host.pod_runtime) as cluster:
        yield cluster


def serve_process(owner: int, shape: ClusterShape, answer: int) -> None:
    """Serve a private cluster until the process `owner` ends, or closes our standard input.

    Once the cluster answers, its socket, folder and isolation are written to the descriptor
    `answer` as a line of JSON. Output goes to the cluster's log from then on.
    """
    with private_host(shape) as host:
        import uvloop

        from trainyard.composition.cluster_log import log_to
        from trainyard.composition.garbage_collection import collect_garbage_again

        log = host.paths.log.open("a+")
        log_to(log)
        host.pod_runtime.ready()
        collect_garbage_again()
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        uvloop.run(_serve_until_alone(owner, host, answer))


async def _serve_until_alone(owner: int, host: PrivateHost, answer: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        process = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    loop.add_reader(process, ended.set)
    loop.add_reader(0, lambda: None if os.read(0, 1) else ended.set())
    async with host.cluster() as cluster:
        address = {"socket": str(cluster.socket), "folder": str(host.paths.folder)}
        write_answer(answer, {**address, "isolation": cluster.agent.isolation})
        await ended.wait()


def write_answer(descriptor: int, answer: dict[str, Any]) -> None:
    """Write the one line of JSON that the owner waits for, and close the descriptor."""
    os.write(descriptor, json.dumps(answer).encode() + b"\n")
    os.close(descriptor)
