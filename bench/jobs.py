"""Two hundred jobs of one replica each, submitted at once to a durable cluster."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import Any

from bench.commands import manifest, seconds, state
from bench.yardstick import bare_start, least
from trainyard.client.submission import resource_of
from trainyard.kube.client import Client
from trainyard.machine.state_folder import find_cluster

Row = tuple[str, float, str, float | None]
JOBS = 200
_ROUNDS = 5
_BARE_STARTS = 10
"""Before and after."""
_PATIENCE_SECONDS = 120.0


def measure() -> list[Row]:
    """From the start of `submit` to the last job's end, in clusters of their own."""
    found = [_round() for _ in range(_ROUNDS)]
    rate, of_one, submitted = (statistics.median(each) for each in zip(*found, strict=True))
    return [
        (f"{JOBS} one-pod jobs, submission included", rate, "jobs/s", None),
        ("the same, while a bare interpreter starts", of_one, "jobs/start", least(0.97)),
        ("of which `trainyard submit`", submitted, "s", None),
    ]


def _round() -> tuple[float, float, float]:
    """Jobs a second and in the time of a bare start, and seconds of `submit`."""
    with state() as folder:
        seconds("up")
        file = folder / "jobs.yaml"
        file.write_text("---".join(manifest(f"job-{n}", "/bin/true") for n in range(JOBS)))
        bare = [bare_start() for _ in range(_BARE_STARTS)]
        started = time.perf_counter()
        submitted = seconds("submit", "-f", str(file))
        asyncio.run(_all_succeeded())
        took = time.perf_counter() - started
        bare += [bare_start() for _ in range(_BARE_STARTS)]
    return JOBS / took, statistics.median(bare) * JOBS / took, submitted


async def _all_succeeded() -> None:
    cluster = find_cluster()
    if cluster is None:
        raise RuntimeError("the cluster is gone")
    resource = resource_of("PyTorchTrainingJob")
    async with Client.unix(cluster.socket) as client, asyncio.timeout(_PATIENCE_SECONDS):
        jobs, version = await client.list(resource, "default")
        phases = {job["metadata"]["name"]: _phase(job) for job in jobs}
        watch = client.watch(resource, "default", resource_version=version)
        async with contextlib.aclosing(watch) as events:
            while list(phases.values()).count("Succeeded") < JOBS:
                event = await anext(events)
                if event.type != "BOOKMARK":
                    phases[event.object["metadata"]["name"]] = _phase(event.object)


def _phase(job: dict[str, Any]) -> str:
    return str((job.get("status") or {}).get("phase", ""))
