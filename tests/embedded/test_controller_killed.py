"""The controller killed with SIGKILL at random moments, while jobs restart all the time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.embedded.churn import SHAPES
from tests.embedded.command_line import Object
from tests.embedded.killed_controller import Controllers
from tests.embedded.launching import NAMESPACE, resource_of
from tests.embedded.lifecycle_yard import ENDS
from tests.tools import soak
from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.cluster import ClusterSettings, run_cluster
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.kube.client import Client
from trainyard.kube.resources import PODS
from trainyard.machine.state_folder import Paths

KILLS = soak(25, 200)
LONGEST_LIFE_SECONDS = 0.8
ROUNDS_AT_ONCE = 2
PATIENCE_SECONDS = 180.0
SETTLE_SECONDS = 15.0


class Churn:
    """Submits rounds of jobs, one of each shape, and tells what became of each."""

    def __init__(self, client: Client, data: Path) -> None:
        self._client, self._data = client, data
        self.jobs: dict[str, str] = {}
        """Name to shape."""
        self._kinds: dict[str, str] = {}
        self._rounds = 0

    async def submit_round(self) -> list[str]:
        """One job of each shape; their names."""
        self._rounds += 1
        names = [f"{shape}-{self._rounds}" for shape in SHAPES]
        for name, (shape, make) in zip(names, SHAPES.items(), strict=True):
            body = make(name)
            self.jobs[name], self._kinds[name] = shape, body["kind"]
            await self._client.create(resource_of(body["kind"]), body, NAMESPACE)
        return names

    async def job(self, name: str) -> Object:
        """The job as stored."""
        return await self._client.get(resource_of(self._kinds[name]), name, NAMESPACE)

    async def under_way(self) -> int:
        """How many jobs have not ended."""
        return sum([not await self._has_ended(name) for name in self.jobs])

    async def _has_ended(self, name: str) -> bool:
        return (await self.job(name)).get("status", {}).get("phase") in ENDS

    async def outcome(self, name: str) -> Object:
        """All of a job's end that should not depend on who disturbed it, names left out."""
        job = await self.job(name)
        pods, _ = await self._client.list(PODS, NAMESPACE)
        owned = [p for p in pods if p["metadata"]["ownerReferences"][0]["name"] == name]
        status = job.get("status", {})
        told = {
            "phase": status.get("phase"),
            "backoffCount": status.get("backoffCount"),
            "restartCount": status.get("restartCount"),
            "tasks": [
                (
                    task["type"],
                    task.get("restartCount"),
                    [replica["phase"] for replica in task["replicas"]],
                )
                for task in status.get("tasks", ())
            ],
            "aggregate": status.get("aggregate"),
            "conditions": {
                c["type"]: (c["status"], c.get("reason"), c.get("message"))
                for c in status.get("conditions", ())
            },
            "attempts": sorted(
                (a["number"], a.get("replica", ""), a.get("exitCode", -1), a.get("reason", ""))
                for a in status.get("attempts", ())
            ),
            "pods": {p["metadata"]["name"]: p["status"]["phase"] for p in owned},
            "starts": {
                path.name: len(path.read_text().split())
                for path in sorted((self._data / name).glob("starts-*"))
            },
        }
        text = re.sub(rf"{name}-[0-9a-f]{{5}}-", "", json.dumps(told))
        return dict(json.loads(text.replace(name, "JOB")))


@asynccontextmanager
async def churning(folder: Path) -> AsyncIterator[tuple[Churn, Path]]:
    """A cluster without a controller, and the path of its socket."""
    data = folder / "data"
    data.mkdir()
    paths = Paths(folder / ".state")
    paths.prepare()
    pod_runtime = start_pod_runtime(paths.folder, die_with_parent=True)
    try:
        settings = ClusterSettings(
            paths, EXTENSION, working_dir=str(folder), volumes={"data": str(data)}
        )
        async with (
            run_cluster(settings, pod_runtime) as cluster,
            Client.unix(cluster.socket) as client,
        ):
            yield Churn(client, data), cluster.socket
    finally:
        pod_runtime.kill()


async def until_ended(churn: Churn) -> None:
    """Wait until all jobs have ended."""
    last = time.monotonic() + PATIENCE_SECONDS
    while left := await churn.under_way():
        assert time.monotonic() < last, f"{left} jobs do not end"
        await asyncio.sleep(0.05)


async def settled(churn: Churn, name: str, wanted: Object) -> Object:
    """The job's outcome, once it is as wanted, or after a while."""
    last = time.monotonic() + SETTLE_SECONDS
    while True:
        found = await churn.outcome(name)
        if found == wanted or time.monotonic() > last:
            return found
        await asyncio.sleep(0.05)


async def at_rest(churn: Churn, name: str) -> Object:
    """The job's outcome, once nothing has changed for a second."""
    found, since = await churn.outcome(name), time.monotonic()
    while time.monotonic() - since < 1:
        await asyncio.sleep(0.1)
        if (now := await churn.outcome(name)) != found:
            found, since = now, time.monotonic()
    return found


async def test_a_controller_killed_at_random_moments_changes_nothing_of_any_job(
    tmp_path: Path,
) -> None:
    """State, conditions, counts, attempts, pods that are left and starts of each replica."""
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(1 << 32))
    print(f"TRAINYARD_SEED={seed}")
    rng = random.Random(seed)
    async with churning(tmp_path) as (churn, path):
        controllers = await Controllers.start(path)
        try:
            controller = await controllers.next_pid()
            names = await churn.submit_round()
            await until_ended(churn)
            reference = {churn.jobs[name]: await at_rest(churn, name) for name in names}
            started = time.monotonic()
            for _ in range(KILLS):
                if await churn.under_way() <= (ROUNDS_AT_ONCE - 1) * len(SHAPES):
                    await churn.submit_round()
                await asyncio.sleep(rng.uniform(0, LONGEST_LIFE_SECONDS))
                os.kill(controller, signal.SIGKILL)
                controller = await controllers.next_pid()
            seconds = time.monotonic() - started
            await until_ended(churn)
            outcomes = {
                name: await settled(churn, name, reference[shape])
                for name, shape in churn.jobs.items()
            }
        finally:
            await controllers.end()
    starts = sum(sum(outcome["starts"].values()) for outcome in outcomes.values())
    print(f"{KILLS} kills in {seconds:.0f} s, {len(outcomes)} jobs, {starts} starts of replicas")
    for name, outcome in outcomes.items():
        assert outcome == reference[churn.jobs[name]], f"{name}, TRAINYARD_SEED={seed}"
    phases = Counter(outcome["phase"] for outcome in reference.values())
    assert phases == {"Succeeded": 6, "Failed": 3}
