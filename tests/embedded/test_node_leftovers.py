"""Without namespaces too, nothing of a container outlives it, however it forks and ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from tests.embedded.node_cluster import Cluster, cluster, eventually, processes_with
from tests.embedded.test_node_zygote import children
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle, start_pod_runtime

ROUNDS = 20 if os.environ.get("TRAINYARD_SOAK") == "1" else 3
TOGETHER = 8
# Grows a tree in which everybody leaves the session, forks twice, and ends at random, or never.
TREE = """
import os, random, sys, time
random.seed(int(sys.argv[1]))
def grow(depth):
    for _ in range(random.randrange(1, 4)):
        if os.fork():
            continue
        os.setsid()
        if random.random() < 0.7 and os.fork():
            time.sleep(random.random() * 0.02)
            os._exit(0)
        if depth:
            grow(depth - 1)
        time.sleep(random.choice([0, 0.01, 0.03, 1000]))
        os._exit(0)
grow(2)
time.sleep(random.random() * 0.05)
"""


async def create_trees(node: Cluster, marker: str, seed: int) -> list[str]:
    names = [f"job-{seed}-{index}" for index in range(TOGETHER)]
    for index, name in enumerate(names):
        command = [sys.executable, "-I", "-S", "-c", TREE, str(seed * TOGETHER + index), marker]
        await node.create(name, command)
    return names


def plain(state: Path) -> PodRuntimeHandle:
    return start_pod_runtime(state, isolation="plain", die_with_parent=True)


async def test_trees_that_leave_their_session_end_with_their_program(tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    seed = random.randrange(1 << 20)
    print("seed", seed)
    async with cluster(tmp_path / "state", handle=plain(tmp_path / "state")) as node:
        for number in range(ROUNDS):
            for name in await create_trees(node, marker, seed + number):
                await node.phase(name, "Succeeded")
            assert not processes_with(marker)


async def test_trees_end_when_their_pods_are_deleted_by_force(tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    seed = random.randrange(1 << 20)
    print("seed", seed)
    async with cluster(tmp_path / "state", handle=plain(tmp_path / "state")) as node:
        for number in range(ROUNDS):
            names = await create_trees(node, marker, seed + number)
            await asyncio.sleep(0.01 * number)
            for name in names:
                await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))
            await eventually(lambda: not processes_with(marker))


async def test_trees_end_when_their_first_processes_are_killed(tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    seed = random.randrange(1 << 20)
    print("seed", seed)
    handle = plain(tmp_path / "state")
    async with cluster(tmp_path / "state", handle=handle) as node:
        for number in range(ROUNDS):
            names = await create_trees(node, marker, seed + number)
            for name in names:
                await node.phase(name, "Running", "Succeeded")
            for pid in children(handle.pid, "pod-init"):
                with suppress(ProcessLookupError):  # a tree that had ended by itself
                    os.kill(pid, signal.SIGKILL)
            for name in names:
                await node.phase(name, "Failed", "Succeeded")
            await eventually(lambda: not processes_with(marker))


async def test_trees_end_with_the_cluster_in_the_middle_of_starting(tmp_path: Path) -> None:
    seed = random.randrange(1 << 20)
    print("seed", seed)
    for number in range(ROUNDS):
        marker, state = uuid.uuid4().hex, tmp_path / str(number)
        async with cluster(state, handle=plain(state)) as node:
            await create_trees(node, marker, seed + number)
            await asyncio.sleep(0.02 * number)
        await eventually(lambda: not processes_with(marker))  # noqa: B023


async def test_what_a_command_leaves_behind_goes_on_and_ends_with_its_container(
    tmp_path: Path,
) -> None:
    marker = f"7{uuid.uuid4().int % 10**8}"
    script = f"(setsid sh -c 'setsid sleep {marker} & exec sleep {marker}' &) >/dev/null 2>&1"
    async with cluster(tmp_path / "state", handle=plain(tmp_path / "state")) as node:
        await node.create("job-0", ["sleep", "1000"])
        await node.phase("job-0", "Running")
        assert await node.exec("job-0", f"{script}; echo done") == (0, "done\n")
        await eventually(lambda: len(processes_with(f"sleep\x00{marker}")) == 2)
        await node.registry.delete("pods", "default", "job-0", Deletion(grace_seconds=0))
        await eventually(lambda: not processes_with(marker))


async def test_a_command_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    marker = f"7{uuid.uuid4().int % 10**8}"
    async with cluster(tmp_path / "state", handle=plain(tmp_path / "state")) as node:
        await node.create("job-0", ["sleep", "1000"])
        await node.phase("job-0", "Running")
        script = f"setsid sleep {marker} & exec sleep {marker}"
        session = await node.agent.exec(node.pod("job-0"), "main", ["sh", "-c", script])
        await eventually(lambda: len(processes_with(marker)) == 2)
        await session.close()
        await eventually(lambda: not processes_with(marker))
        await node.phase("job-0", "Running")
