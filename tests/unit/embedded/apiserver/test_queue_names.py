"""A queue that a job names: anything will do until somebody makes a queue by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.registry import Registry
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings
from trainyard.kube.transport import Request
from trainyard.kube.unix_transport import UnixTransport

JOBS = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/genericjobs"
QUEUES = "/apis/scheduler.tensorstack.dev/v1beta1/queues"
Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Ask]:
    """Status and body of a request to a cluster with its scheduler."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    server = ApiServer(registry)
    await server.serve_unix(tmp_path / "api.sock")
    transport = UnixTransport(tmp_path / "api.sock")
    scheduling = SchedulerSettings("node", Capacity({"cpu": 1000, "pods": 9}), extension=EXTENSION)
    scheduler = asyncio.create_task(Scheduler(registry, scheduling).run())

    async def request(method: str, path: str, body: Any = None, **extra: Any) -> tuple[int, Any]:
        data = b"" if body is None else orjson.dumps(body)
        answer = await transport.request(Request(method, path, data, **extra), 10)
        return answer.status, orjson.loads(answer.body)

    made = registry.subscribe("queues.scheduler.tensorstack.dev")
    async with asyncio.timeout(120):
        await made.batch()
    yield request
    scheduler.cancel()
    await transport.aclose()
    await server.close()
    await registry.close()


def job(name: str, queue: str) -> dict[str, Any]:
    container = {"name": "main", "image": "any", "command": ["true"]}
    replicas = [{"type": "worker", "template": {"spec": {"containers": [container]}}}]
    scheduler = {"t9kScheduler": {"queue": queue}}
    spec = {"replicaSpecs": replicas, "scheduler": scheduler}
    return {**of_kind("batch", "GenericJob"), "metadata": {"name": name}, "spec": spec}


def of_kind(group: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": f"{group}.tensorstack.dev/v1beta1", "kind": kind}


def queue(name: str) -> dict[str, Any]:
    return {**of_kind("scheduler", "Queue"), "metadata": {"name": name}}


async def test_any_name_will_do_while_nobody_has_made_a_queue(ask: Ask) -> None:
    assert (await ask("POST", JOBS, job("one", "anything")))[0] == 201


async def test_a_name_that_no_queue_has_is_refused_with_the_one_that_was_meant(ask: Ask) -> None:
    assert (await ask("POST", QUEUES, queue("night")))[0] == 201
    status, refusal = await ask("POST", JOBS, job("one", "nigth"))
    assert status == 422
    assert refusal["details"]["causes"][0]["field"] == "spec.scheduler.t9kScheduler.queue"
    expected = (
        'Not found: "nigth": there is no such queue among default, night; did you mean night?'
    )
    assert expected in refusal["message"]
    for name in ("night", "default"):
        assert (await ask("POST", JOBS, job(f"in-{name}", name)))[0] == 201


async def test_a_queue_that_the_scheduler_made_counts_once_somebody_has_changed_it(
    ask: Ask,
) -> None:
    merge = {"content_type": "application/merge-patch+json"}
    change = {"spec": {"quota": {"requests": {"cpu": "1"}}}}
    assert (await ask("PATCH", f"{QUEUES}/default", change, **merge))[0] == 200
    assert (await ask("POST", JOBS, job("one", "defualt")))[0] == 422


async def test_a_job_keeps_a_queue_that_is_gone_but_cannot_move_to_one_that_is_not(
    ask: Ask,
) -> None:
    merge = {"content_type": "application/merge-patch+json"}
    for name in ("night", "day"):
        await ask("POST", QUEUES, queue(name))
    assert (await ask("POST", JOBS, job("one", "night")))[0] == 201
    assert (await ask("DELETE", f"{QUEUES}/night"))[0] == 200
    label = {"metadata": {"labels": {"kept": "yes"}}}
    assert (await ask("PATCH", f"{JOBS}/one", label, **merge))[0] == 200
