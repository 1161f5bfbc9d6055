"""Jobs that are over, and deleted, leave nothing behind in the memory of the cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client
from trainyard.kube.resources import PODS
from trainyard.machine.state_folder import RunningCluster, find_cluster

IS_SOAK = os.environ.get("TRAINYARD_SOAK") == "1"
ROUND = 1000 if IS_SOAK else 100
ROUNDS = 10
"""In each of the rounds so many jobs are run and deleted; the first is what memory is held to."""
AT_ONCE = 16
MOST_GROWTH = 1.2
FOR_IMPORTS = 0 if IS_SOAK else 25
"""MiB. What 1,000 jobs have filled for good (journals, bounded memories), 100 have not yet."""
MOST_KEPT_KIB = 60 if IS_SOAK else 120
"""Of a finished job with its pod and events: 15 KB of JSON, and what the controller knows of it as
dictionaries, 45 KiB together (half as much again as when they were packed at rest); and of
so few jobs as much again, for the journals that they fill."""
PATIENCE_SECONDS = 120.0
JOBS = KINDS["GenericJob"].resource


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": ["/bin/true"]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicaSpecs": [{"type": "worker", "replicas": 1, "template": pod}]},
    }


def resident_mib(cluster: RunningCluster) -> float:
    status = Path(f"/proc/{cluster.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


async def run_jobs(cluster: RunningCluster, prefix: str, count: int, *, delete: bool) -> None:
    """Run jobs, some at a time, each to its end; then delete them."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: Client, name: str) -> None:
        async with gate, asyncio.timeout(PATIENCE_SECONDS):
            await client.create(JOBS, job(name), "default")
            await until(lambda: has_succeeded(client, name))
            if delete:
                await client.delete(JOBS, name, "default", propagation="Background")

    async def has_succeeded(client: Client, name: str) -> bool:
        found = await client.get(JOBS, name, "default")
        return (found.get("status") or {}).get("phase") == "Succeeded"

    async with Client.unix(cluster.socket) as client, asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(client, f"{prefix}-{number}"))


async def all_gone(cluster: RunningCluster) -> None:
    async with Client.unix(cluster.socket) as client, asyncio.timeout(PATIENCE_SECONDS):

        async def is_empty() -> bool:
            return not (await client.list(PODS))[0]

        await until(is_empty)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    trainyard = CommandLine(tmp_path)
    trainyard.run("up")
    found = find_cluster(trainyard.state)
    assert found is not None
    yield found
    trainyard.run("down")


def test_memory_stays_flat_over_jobs_that_are_run_and_deleted(cluster: RunningCluster) -> None:
    sizes = []
    for number in range(ROUNDS):
        asyncio.run(run_jobs(cluster, f"round-{number}", ROUND, delete=True))
        asyncio.run(all_gone(cluster))
        sizes.append(resident_mib(cluster))
    assert sizes[-1] <= sizes[0] * MOST_GROWTH + FOR_IMPORTS, sizes


def test_a_finished_job_that_is_kept_takes_little(cluster: RunningCluster) -> None:
    asyncio.run(run_jobs(cluster, "first", ROUND, delete=False))
    before = resident_mib(cluster)
    asyncio.run(run_jobs(cluster, "then", 2 * ROUND, delete=False))
    kept = (resident_mib(cluster) - before) * 1024 / (2 * ROUND)
    assert kept <= MOST_KEPT_KIB, f"{kept:.1f} KiB a job"
