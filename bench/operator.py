"""The operator on a real control plane, beside a bare client that makes the same requests.

All of a measurement is taken in one run, in turns, since a machine is never as fast twice. Rows
that are ratios compare the medians of the turns. `measure()` gives rows (what, value, unit,
target); `$BENCH_JOBS` is how many jobs there are (500).
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from tests.cluster.plane import RunningControlPlane, free_port
from tests.cluster.yard import until

from bench import latency
from bench import plane as planes
from bench.plane import JOBS, count, cpu_seconds, job, namespace
from trainyard.kube.client import Client
from trainyard.kube.resources import EVENTS, PODS, Resource

Row = tuple[str, float | None, str, float | None]
JOB_COUNT = int(os.environ.get("BENCH_JOBS", "500"))
REPLICAS = 8
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
EVENTS_OF_A_JOB = 3
"""Until its pods are scheduled: Created, NewReplica, Start."""
_PATIENCE_SECONDS = 600.0


class Turn(NamedTuple):
    """One turn of one client: seconds until there were all pods, and until nothing was left.

    Processor time is that of the client and of all others; `pods_cpu` of both, as long as there
    were pods to come.
    """

    pods: float
    settled: float
    pods_cpu: float
    own_cpu: float
    server_cpu: float


def measure() -> list[Row]:
    """Rates of pods against bare clients, then how soon a job's first pod is asked for."""
    turns: dict[str, list[Turn]] = {"pods": [], "writes": [], "operator": []}
    for number in range(ROUNDS):
        # A new one each time: one with many objects collects its garbage seldom, and then for long.
        with planes.running() as plane:
            if plane is None:
                return [("operator: no control plane (tools/control_plane.py)", None, "", None)]
            asyncio.run(_take_turns(plane, turns, number))
    rows = _throughput(turns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with planes.running(*latency.options(folder)) as plane:
            assert plane is not None
            return rows + latency.rows(folder, asyncio.run(_latency(plane)))


async def _latency(plane: RunningControlPlane) -> str:
    """The namespace in which jobs were created one by one."""
    async with await Client.from_kubeconfig(plane.kubeconfig) as client:
        where = await namespace(client)
        async with operator(plane, "--namespace", where):
            await latency.one_by_one(client, where, JOB_COUNT)
        return where


async def _take_turns(
    plane: RunningControlPlane, turns: dict[str, list[Turn]], number: int
) -> None:
    """A round, in which another begins than in the round before."""
    order = [*turns][number % len(turns) :] + [*turns][: number % len(turns)]
    async with await Client.from_kubeconfig(plane.kubeconfig) as client:
        for which in order:
            turns[which].append(await _turn(plane, client, which))
            print(which, turns[which][-1], file=sys.stderr, flush=True)


def _throughput(turns: dict[str, list[Turn]]) -> list[Row]:
    pods = JOB_COUNT * REPLICAS

    def rate(which: str) -> float:
        return pods / statistics.median(turn.pods for turn in turns[which])

    def cpu(which: str) -> float:
        cost = (turn.own_cpu + turn.server_cpu for turn in turns[which])
        return statistics.median(cost) / pods * 1e3

    def per_cpu(which: str) -> float:
        """Pods for each second of processor time, until there are all."""
        return pods / statistics.median(turn.pods_cpu for turn in turns[which])

    operator = turns["operator"]
    settled = statistics.median(turn.settled / turn.pods for turn in operator)
    own = statistics.median(turn.own_cpu for turn in operator) / pods * 1e3
    of = f"{JOB_COUNT} jobs x {REPLICAS}"
    return [
        (f"operator, {of}: pods created", rate("operator"), "pods/s", None),
        ("a bare client that only creates the pods", rate("pods"), "pods/s", None),
        ("ratio", rate("operator") / rate("pods"), "of it", 0.56),
        ("a bare client with the same writes and watches", rate("writes"), "pods/s", None),
        ("ratio", rate("operator") / rate("writes"), "of it", 0.9),
        ("all settled, events included, against the time of the pods", settled, "x", 1.4),
        (
            "pods for the same processor time, until there are all: operator, of pods alone",
            per_cpu("operator") / per_cpu("pods"),
            "of it",
            0.56,
        ),
        (
            "the same, of a client with the same writes",
            per_cpu("operator") / per_cpu("writes"),
            "of it",
            0.9,
        ),
        ("processor time a pod, all processes: operator", cpu("operator"), "ms", None),
        ("the same of the bare client with the same writes", cpu("writes"), "ms", None),
        ("the same of the one that only creates pods", cpu("pods"), "ms", None),
        ("processor time a pod, the operator's own", own, "ms", None),
    ]


async def _turn(plane: RunningControlPlane, client: Client, which: str) -> Turn:
    where = await namespace(client)
    names = [f"job-{number}" for number in range(JOB_COUNT)]
    if which == "operator":
        async with operator(plane, "--namespace", where) as process:
            process.send_signal(signal.SIGSTOP)
            await create_jobs(client, where, names)
            return await _timed(plane, client, where, process)
    await create_jobs(client, where, names)
    async with _bare(plane, where, which) as process:
        return await _timed(plane, client, where, process)


async def _timed(
    plane: RunningControlPlane, client: Client, where: str, process: asyncio.subprocess.Process
) -> Turn:
    await planes.collect_garbage(client)
    pids = (process.pid, *plane.pids)
    before = [cpu_seconds(pid) for pid in pids]
    started = time.perf_counter()
    if process.stdin is not None:
        process.stdin.write(b"\n")
    else:
        process.send_signal(signal.SIGCONT)
    pods = await _until(client, PODS, where, JOB_COUNT * REPLICAS) - started
    pods_cpu = sum(cpu_seconds(pid) for pid in pids) - sum(before)
    if process.stdout is not None:
        await process.stdout.readline()
    else:
        await _until(client, EVENTS, where, EVENTS_OF_A_JOB * JOB_COUNT)
    settled = time.perf_counter() - started
    own, *others = (cpu_seconds(pid) - b for pid, b in zip(pids, before, strict=True))
    return Turn(pods, settled, pods_cpu, own, sum(others))


async def create_jobs(client: Client, where: str, names: list[str]) -> None:
    """Several at once."""
    left = iter(names)

    async def create() -> None:
        for name in left:
            await client.create(JOBS, job(name, REPLICAS), where)

    await asyncio.gather(*(create() for _ in range(16)))


async def _until(client: Client, resource: Resource, where: str, number: int) -> float:
    """When there were that many."""
    await until(
        lambda: count(client, resource, where), lambda found: found >= number, _PATIENCE_SECONDS
    )
    return time.perf_counter()


@asynccontextmanager
async def operator(
    plane: RunningControlPlane, *options: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that has read the cluster."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainyard.cli.main", "operator"),
        *("--kubeconfig", str(plane.kubeconfig), "--no-leader-elect"),
        *("--host", "127.0.0.1", "--port", str(port), *options),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/readyz"
            await until(lambda: _answer(session, url), lambda text: text == "leading")
        yield process
    finally:
        process.kill()
        await process.wait()


async def _answer(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as answer:
            return await answer.text()
    except aiohttp.ClientError:
        return ""


@asynccontextmanager
async def _bare(
    plane: RunningControlPlane, where: str, which: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.bare", str(plane.kubeconfig), where, which),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        await process.wait()
