"""An operator that starts on a real control plane with 2,000 jobs, all of whose pods run.

Jobs, Services and pods are created as an operator would have created them, and told as running;
that takes a machine minutes. Then an operator is started, which must find nothing to write.
`measure()` gives rows (what, value, unit, target); `$BENCH_COLD` is how many jobs there are.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

import aiohttp
from tests.cluster.plane import RunningControlPlane, free_port

from bench import many
from bench import plane as planes
from bench.many import REPLICAS, RUNNING, Row
from bench.plane import JOBS, count, job, namespace, rests
from trainyard.kinds.kind_admission import admit
from trainyard.kinds.kind_registry import describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.resources import EVENTS, PODS
from trainyard.lifecycle import Observed, Owned, Pod, plan
from trainyard.lifecycle.actions import Create

JOB_COUNT = int(os.environ.get("BENCH_COLD", "2000"))
_AT_ONCE = 32
_SERVER = "kube-apiserver"


def measure() -> list[Row]:
    """A cold start and idleness."""
    with planes.running() as plane:
        if plane is None:
            return [("cold start: no control plane (tools/control_plane.py)", None, "", None)]
        return asyncio.run(_measure(plane))


async def _measure(plane: RunningControlPlane) -> list[Row]:
    async with (
        await Client.from_kubeconfig(plane.kubeconfig) as client,
        aiohttp.ClientSession() as session,
    ):
        where = await namespace(client)
        left = iter(range(JOB_COUNT))

        async def create() -> None:
            for number in left:
                await _run(client, where, f"job-{number}")

        await asyncio.gather(*(create() for _ in range(_AT_ONCE)))
        await rests(plane.pids)
        before = await _versions(client, where)
        port = free_port()
        rows = await many.operator(session, JOB_COUNT, plane.kubeconfig, port, _SERVER)
        assert await _versions(client, where) == before, "it has found something to do"
        assert await count(client, EVENTS, where) == 0
        return rows


async def _run(client: Client, where: str, name: str) -> None:
    """Create a job and all that belongs to it, running."""
    settings = Settings()
    raw = await client.create(JOBS, job(name, REPLICAS), where)
    model: Any = admit(dict(raw)).model
    workload = describe(model, settings)
    observed = Observed()
    first = plan(workload, None, observed, datetime.now(UTC), settings)
    creates = [each for each in first.actions if isinstance(each, Create)]
    made = await asyncio.gather(*(_create(client, where, each) for each in creates))
    found = [(create.resource, obj) for create, obj in zip(creates, made, strict=True)]
    observed = Observed(
        pods=tuple(Pod.decode(obj) for resource, obj in found if resource == PODS),
        owned=tuple(Owned.decode(resource, obj) for resource, obj in found if resource != PODS),
    )
    status = None
    while (
        told := plan(workload, status, observed, datetime.now(UTC), settings).status
    ) is not None:
        status = told
    await client.replace(JOBS, {**raw, "status": status}, subresource="status")


async def _create(client: Client, where: str, create: Create) -> dict[str, Any]:
    manifest = create.manifest()
    if create.resource != PODS:
        return await client.create(create.resource, manifest, where)
    manifest["spec"]["nodeName"] = "node"
    pod = await client.create(PODS, manifest, where)
    return await client.replace(PODS, {**pod, "status": RUNNING}, subresource="status")


async def _versions(client: Client, where: str) -> set[tuple[str, str]]:
    found: list[dict[str, Any]] = []
    for resource in (JOBS, PODS):
        found += (await client.list(resource, where))[0]
    return {(each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in found}
