"""Every right of the operator, taken away one by one: it says which, goes on, and recovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.cluster.kubelet import Fate, running_kubelet
from tests.cluster.test_readiness import granted, token
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from tests.tools import soak
from trainyard.kube.client import Client
from trainyard.kube.resources import Resource
from trainyard.operator import rights
from trainyard.operator.grants import LEASE_RULE, rules
from trainyard.operator.service import Service
from trainyard.operator.settings import LeaseSettings, OperatorSettings, ServiceSettings

Object = dict[str, Any]
Right = tuple[str, str, str]
"""Group, resource and verb."""
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BATCH = "batch.tensorstack.dev"
CHOSEN: set[Right] = {
    ("", "pods", "create"),
    ("", "pods", "delete"),
    ("", "services", "create"),
    ("", "secrets", "list"),
    ("", "events", "create"),
    (BATCH, "pytorchtrainingjobs", "watch"),
    (BATCH, "deepspeedjobs", "list"),
    (BATCH, "pytorchtrainingjobs/status", "update"),
    ("coordination.k8s.io", "leases", "update"),
}
"""One of each sort; all of them in the soak."""
CREATED: dict[Right, str] = {
    ("", "pods", "create"): "cannot create pods",
    ("", "services", "create"): "cannot create services",
    # https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
    # #ownerreferencespermissionenforcement
    (BATCH, "pytorchtrainingjobs/finalizers", "update"): "set finalizers on",
}
"""What a job with a pod is made of: without it the next one waits, and says for what."""
CORE = {"pods", "services", "secrets", "configmaps"}
BLOCKING: set[Right] = {
    *CREATED,
    *(("", resource, verb) for resource in CORE for verb in ("list", "watch")),
    *((BATCH, "pytorchtrainingjobs", verb) for verb in ("list", "watch")),
    (BATCH, "pytorchtrainingjobs/status", "update"),
    ("coordination.k8s.io", "leases", "get"),
    ("coordination.k8s.io", "leases", "update"),
}
"""Rights without which no job of that kind comes to its end."""


def every_right(namespace: str) -> list[Right]:
    """What an operator of one namespace asks for."""
    settings = OperatorSettings(namespaces=(namespace,))
    return [
        (group, resource, verb)
        for rule in (*rules(settings), LEASE_RULE)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@dataclass
class Stage:
    """An operator in this process, whose account has rights that can be taken away."""

    yard: Yard
    client: Client
    lease_client: Client
    task: asyncio.Task[None] | None = None
    service: Service | None = None

    async def grant(self, but: Right | None = None) -> None:
        """All rights but one."""
        left = [
            {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
            for group, resource, verb in every_right(self.yard.namespace)
            if (group, resource, verb) != but
        ]
        role = "trainyard-operator"
        await self.yard.client.patch(ROLES, role, {"rules": left}, self.yard.namespace)

    async def start(self) -> None:
        """The operator, anew."""
        await self.stop()
        namespace = self.yard.namespace
        settings = ServiceSettings(
            operator=OperatorSettings(namespaces=(namespace,)),
            lease=LeaseSettings(namespace, retry_period=0.5),
            host="127.0.0.1",
            port=0,
        )
        self.service = Service(self.client, settings, lease_client=self.lease_client)
        self.task = asyncio.create_task(self.service.run())

    async def stop(self) -> None:
        """It ends, and lets its Lease go."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def ready(self) -> tuple[int, str]:
        """What `/readyz` answers; 0 while nobody listens."""
        port = self.service.port if self.service is not None else 0
        if not port:
            return 0, ""
        url = f"http://127.0.0.1:{port}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def submit(self, name: str) -> None:
        await self.yard.client.create(PYTORCH, pytorch_job(name, 1), self.yard.namespace)

    def fate(self, pod: Object) -> Fate:
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        return "run" if owner.startswith("runs") else 0


@asynccontextmanager
async def staged(yard: Yard) -> AsyncIterator[Stage]:
    await granted(yard, [])
    kubeconfig = await token(yard)
    async with (
        await Client.from_kubeconfig(kubeconfig) as client,
        await Client.from_kubeconfig(kubeconfig) as lease_client,
    ):
        stage = Stage(yard, client, lease_client)
        await stage.grant()
        await stage.start()
        try:
            yield stage
        finally:
            await stage.stop()


async def test_a_right_that_is_taken_away_is_named_and_costs_only_what_needs_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("EVERY_SECONDS", "AGAIN_SECONDS"):  # a minute for each of seventy takes too long
        monkeypatch.setattr(rights, name, 0.3)
    async with (
        staged(yard) as stage,
        running_kubelet(yard.client, yard.namespace, stage.fate) as kubelet,
    ):
        await until(stage.ready, lambda told: told == (200, "leading"))
        for number, right in enumerate(every_right(yard.namespace)):
            if right in CHOSEN or soak(0, 1):
                print(number, right)  # pytest shows it with the failure
                caplog.clear()
                await _without(stage, kubelet, f"job-{number}", right, caplog)


async def _without(
    stage: Stage, kubelet: Any, name: str, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    group, resource, verb = right
    yard, full = stage.yard, f"{resource}.{group}" if group else resource
    before = f"runs-{name}"
    if right in CREATED:
        await stage.submit(before)
        await yard.reaches(before, "Running")
    await stage.grant(but=right)
    if verb in ("list", "watch"):  # what is under way goes on until the server ends it
        await stage.start()
    told = f"no right to {verb} {full} in namespace {yard.namespace}"
    status, text = await until(stage.ready, lambda answer: told in answer[1].splitlines())
    assert status == 503
    assert [line for line in text.splitlines() if line.startswith("no right")] == [told]
    assert told in caplog.text
    await stage.submit(name)
    if right in CREATED:
        for pod in await yard.pods(before):
            await kubelet.end(pod, 0)
        await yard.reaches(before, "Succeeded")
        await until(lambda: yard.job(name), lambda job: _says(job, CREATED[right]))
        await until(lambda: yard.kubectl("get", "events"), lambda text: "CreationRefused" in text)
    elif right not in BLOCKING:
        await yard.reaches(name, "Succeeded")
    elif resource.endswith("/status"):
        await until(lambda: _logged(caplog), lambda text: "cannot update status of" in text)
    await stage.grant()
    await yard.reaches(name, "Succeeded")
    await until(stage.ready, lambda told: told == (200, "leading"))


def _says(job: Object, text: str) -> bool:
    return any(text in each["message"] for each in (job.get("status") or {}).get("conditions", ()))


async def _logged(caplog: pytest.LogCaptureFixture) -> str:
    return caplog.text
