"""The controller over HTTP, against the real embedded API server; nobody runs its pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.registry import Registry
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import KubeError, NotFound
from trainyard.kube.resources import EVENTS, LEASES, NAMESPACES, PODS, SERVICES
from trainyard.kube.transport import Request, Response, StreamResponse
from trainyard.kube.unix_transport import UnixTransport
from trainyard.operator.config.operator_settings import OperatorSettings, ServiceSettings
from trainyard.operator.embedded_operator import run
from trainyard.operator.operator_process import OperatorProcess

JOBS = KINDS["PyTorchTrainingJob"].resource
SETTINGS = OperatorSettings(lifecycle=Settings.local())
PATIENCE_SECONDS = 120.0
"""The first request imports what it needs, on a machine with much else to do."""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of an embedded API server that keeps everything in memory."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    server = ApiServer(registry, None)
    await server.serve_unix(tmp_path / "api.sock")
    async with Client.unix(tmp_path / "api.sock", timeout_seconds=PATIENCE_SECONDS) as client:
        yield client
    await server.close()
    await registry.close()


@contextlib.asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run something in the background, and end it."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(check: Callable[[], Awaitable[Any]]) -> Any:
    """What `check` returns once that is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(KubeError, KeyError):
                if result := await check():
                    return result
            await asyncio.sleep(0.01)


def job(name: str, replicas: int = 2) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "python:3.11", "command": ["true"]}
    replica = {
        "type": "worker",
        "replicas": replicas,
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicaSpecs": [replica]},
    }


async def test_a_job_gets_its_objects_a_status_and_events(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        stored = await client.create(JOBS, job("train"))

        async def complete() -> bool:
            pods, _ = await client.list(PODS, "default")
            events, _ = await client.list(EVENTS, "default")
            return len(pods) == 2 and len(events) >= 3

        await eventually(complete)
        pods, _ = await client.list(PODS, "default")
        owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods}
        assert owners == {stored["metadata"]["uid"]}
        services, _ = await client.list(SERVICES, "default", Selection("trainyard.dev/job-uid"))
        assert len(services) == 1
        assert (await client.get(JOBS, "train", "default"))["status"]["phase"] == "Pending"


async def test_a_finished_pod_is_taken_up(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        await client.create(JOBS, job("train", replicas=1))

        async def first_pod() -> dict[str, Any] | None:
            pods, _ = await client.list(PODS, "default")
            return pods[0] if pods else None

        pod = await eventually(first_pod)
        ended = {"terminated": {"exitCode": 0, "finishedAt": "2030-01-01T00:00:00Z"}}
        status = {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "pytorch", "state": ended}],
        }
        await client.replace(PODS, {**pod, "status": status}, subresource="status")

        async def succeeded() -> bool:
            found = await client.get(JOBS, "train", "default")
            return bool(found["status"]["phase"] == "Succeeded")

        await eventually(succeeded)


async def test_a_new_controller_takes_over_what_it_finds(client: Client) -> None:
    async with running(run(client, SETTINGS)):
        await client.create(JOBS, job("train"))

        async def two_pods() -> bool:
            return len((await client.list(PODS, "default"))[0]) == 2

        await eventually(two_pods)
    pods, _ = await client.list(PODS, "default")
    lost = pods[0]["metadata"]
    await client.delete(PODS, lost["name"], "default", grace_seconds=0)
    async with running(run(client, SETTINGS)):

        async def replaced() -> bool:
            pod = await client.get(PODS, lost["name"], "default")
            return bool(pod["metadata"]["uid"] != lost["uid"])

        await eventually(replaced)


async def spread(client: Client) -> None:
    """Namespaces of which each has a job, with a label of its own."""
    for name in ("team-a", "team-b", "team-c"):
        await client.create(NAMESPACES, {"metadata": {"name": name, "labels": {"name": name}}})
        await client.create(JOBS, _labelled(name), name)


def _labelled(label: str) -> dict[str, Any]:
    made = job("train")
    del made["metadata"]["namespace"]
    made["metadata"]["labels"] = {"name": label}
    return made


async def served(client: Client) -> set[str]:
    """The namespaces in which there are pods."""
    return {pod["metadata"]["namespace"] for pod in (await client.list(PODS))[0]}


@pytest.mark.parametrize(
    "scope",
    [
        {"namespaces": ("team-a", "team-b")},
        {"namespace_selector": "name in (team-a,team-b)"},
        {"job_selector": "name!=team-c"},
    ],
    ids=lambda scope: next(iter(scope)),
)
async def test_jobs_outside_of_the_scope_are_left_alone(
    scope: dict[str, Any], client: Client
) -> None:
    """And what is in it goes on: a pod that is gone comes back."""
    await spread(client)
    async with running(run(client, replace(SETTINGS, **scope))):

        async def both() -> bool:
            return await served(client) == {"team-a", "team-b"}

        await eventually(both)
        for pod in (await client.list(PODS, "team-b"))[0]:
            await client.delete(PODS, pod["metadata"]["name"], "team-b", grace_seconds=0)
        await eventually(both)
        assert not (await client.get(JOBS, "train", "team-c")).get("status")


async def test_a_namespace_comes_and_goes_with_its_labels(client: Client) -> None:
    await spread(client)
    settings = replace(SETTINGS, namespace_selector="name=team-a")
    async with running(run(client, settings)):

        async def they_are(wanted: set[str]) -> None:
            async def check() -> bool:
                return await served(client) == wanted

            await eventually(check)

        await they_are({"team-a"})
        for name, label in (("team-b", "team-a"), ("team-a", "other")):
            await client.patch(NAMESPACES, name, {"metadata": {"labels": {"name": label}}})
        await they_are({"team-a", "team-b"})
        for name in ("team-a", "team-b"):
            for pod in (await client.list(PODS, name))[0]:
                await client.delete(PODS, pod["metadata"]["name"], name, grace_seconds=0)
        await they_are({"team-b"})


async def test_a_service_leads_and_shows_its_health_and_metrics(client: Client) -> None:
    settings = ServiceSettings(operator=SETTINGS, host="127.0.0.1", port=0)
    service = OperatorProcess(client, settings)
    async with running(service.run()), aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{service.port}{path}") as answer:
                return answer.status, await answer.text()

        async def leads() -> bool:
            return bool(service.port) and await get("/readyz") == (200, "leading")

        await eventually(leads)
        await client.create(JOBS, job("train"))

        async def counted() -> bool:
            return (
                'trainyard_jobs_created_total{job_kind="PyTorchTrainingJob"} 1'
                in (await get("/metrics"))[1]
            )

        await eventually(counted)
        assert (await get("/healthz"))[0] == 200
        lease = await client.get(LEASES, "trainyard-controller", "default")
        assert lease["spec"]["holderIdentity"]
    lease = await client.get(LEASES, "trainyard-controller", "default")
    assert lease["spec"]["holderIdentity"] == ""
    with pytest.raises(NotFound):
        await client.get(LEASES, "another", "default")


class Counting:
    """A transport that remembers what was asked for."""

    def __init__(self, path: Path) -> None:
        self._inner = UnixTransport(path)
        self.asked: list[str] = []

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        path, _, query = request.path.partition("?")
        self.asked.append(f"{request.method} {path}{'?limit=1' * (query == 'limit=1')}")
        return await self._inner.request(request, timeout_seconds)

    def stream(
        self, request: Request, timeout_seconds: float
    ) -> contextlib.AbstractAsyncContextManager[StreamResponse]:
        return self._inner.stream(request, timeout_seconds)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_a_standby_knows_the_cluster_when_it_takes_over(
    client: Client, tmp_path: Path
) -> None:
    """It asks for the Lease, and lists no more than how far the jobs of each kind are; those that
    went while it stood by are forgotten."""
    settings = ServiceSettings(operator=SETTINGS, host="127.0.0.1", port=0)
    transport = Counting(tmp_path / "api.sock")
    async with (
        Client(transport) as second,
        contextlib.AsyncExitStack() as stack,
        contextlib.AsyncExitStack() as leading,
    ):
        first = await leading.enter_async_context(_running_service(client, settings))
        await eventually(partial(_is, first, "leading"))
        standby = await stack.enter_async_context(_running_service(second, settings, client))
        await eventually(partial(_is, standby, "standby"))
        await standby.until_synced()
        await client.create(JOBS, job("gone"))
        await eventually(lambda: _pods_of(client, "gone"))
        await client.delete(JOBS, "gone", "default")
        await client.create(JOBS, job("stays", replicas=1))
        (pod,) = await eventually(lambda: _pods_of(client, "stays"))
        before = [each for each in transport.asked if each.startswith("GET")]
        await leading.aclose()
        await client.delete(PODS, pod, "default", grace_seconds=0)
        await eventually(partial(_is, standby, "leading"))
        await eventually(lambda: _pods_of(client, "stays"))
        after = [each for each in transport.asked if each.startswith("GET")]
        # The job that calls for something is read by name, and its pods (decision 189).
        named = ("/stays", f"/{pod}", "?limit=1")
        assert [each for each in after if not each.endswith(named)] == before
        assert len(after) > len(before)
        controller = standby._controller
        assert controller is not None
        assert [key.name for key in controller._uids] == ["stays"]


@contextlib.asynccontextmanager
async def _running_service(
    client: Client, settings: ServiceSettings, lease_client: Client | None = None
) -> AsyncIterator[OperatorProcess]:
    service = OperatorProcess(client, settings, lease_client=lease_client)
    async with running(service.run()):
        yield service


async def _is(service: OperatorProcess, state: str) -> bool:
    if not service.port:
        return False
    url = f"http://127.0.0.1:{service.port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text() == state


async def _pods_of(client: Client, name: str) -> list[str]:
    pods = [each["metadata"] for each in (await client.list(PODS, "default"))[0]]
    return [pod["name"] for pod in pods if pod["ownerReferences"][0]["name"] == name]
