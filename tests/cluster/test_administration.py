"""What administrators do under running jobs: quotas, namespaces and definitions come and go."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from tests.cluster.kubelet import running_kubelet
from tests.cluster.test_load import requests
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from tests.unit.kinds import manifests
from trainyard.kinds import server_compatibility
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import NAMESPACES

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few"},
    "spec": {"hard": {"pods": "1"}},
}


@pytest.fixture(autouse=True)
def _controllers(yard: Yard) -> None:
    """All of this takes controllers of Kubernetes."""
    if not yard.plane.collects:
        pytest.skip("not judged: no kube-controller-manager")


async def test_a_job_beyond_the_quota_waits_for_a_larger_one(yard: Yard) -> None:
    await yard.kubectl("apply", "-f", "-", stdin=json.dumps(QUOTA))
    await until(
        lambda: yard.kubectl("get", "quota", "few", "-o", "jsonpath={.status.hard.pods}"),
        lambda text: text == "1",
    )
    before = requests(yard.plane)
    async with yard.operator(), running_kubelet(yard.client, yard.namespace):
        await yard.client.create(PYTORCH, pytorch_job("digits", replicas=4), yard.namespace)
        await until(
            lambda: yard.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"),
            lambda reasons: "CreationRefused" in reasons,
        )
        assert (await yard.job("digits"))["status"]["phase"] != "Failed"
        # Refusals are not met by asking at once for all of them, again and again.
        assert (requests(yard.plane) - before)["POST", "pods"] < 12
        patch = '{"spec":{"hard":{"pods":"8"}}}'
        await yard.kubectl("patch", "quota", "few", "--type=merge", "-p", patch)
        job = await yard.reaches("digits", "Running")
        assert job["status"].get("backoffCount", 0) == 0


async def test_a_namespace_goes_with_its_jobs(yard: Yard) -> None:
    """No pod is created again for long in a namespace that is being deleted."""
    async with (
        yard.operator("--lease-namespace", "default") as operator,
        running_kubelet(yard.client, yard.namespace),
    ):
        for name in ("one", "two"):
            await yard.client.create(PYTORCH, pytorch_job(name), yard.namespace)
            await yard.reaches(name, "Running")
        before = requests(yard.plane)
        await yard.kubectl("delete", "namespace", yard.namespace, "--wait=false")

        async def exists() -> bool:
            with suppress(NotFound):
                return bool(await yard.client.get(NAMESPACES, yard.namespace))
            return False

        await until(exists, lambda there: not there)
        assert (requests(yard.plane) - before)["POST", "pods"] < 20
        await until(lambda: operator.answer("/metrics"), lambda text: "trainyard_jobs{" not in text)
        assert "pass failed" not in operator.log


async def test_a_definition_goes_with_its_jobs_and_comes_back(yard: Yard) -> None:
    kind = KINDS["GenericJob"]
    definition = json.dumps(server_compatibility.crds_for([kind.kind], yard.plane.version)[0])
    async with yard.operator() as operator, running_kubelet(yard.client, yard.namespace):
        # A garbage collector that has not met the kind yet would never collect for it once it is
        # gone: it looks for new kinds twice a minute. This deletion waits for a collector that has.
        await _runs(yard)
        await yard.kubectl("delete", kind.full_name, "mnist", "--cascade=foreground")
        assert await yard.pods() == []
        await _runs(yard)
        try:
            await yard.kubectl("delete", "crd", kind.full_name)
            await until(yard.pods, lambda pods: not pods)
            told = await until(lambda: operator.answer("/readyz"), lambda t: t != "leading")
            assert f"{kind.plural}.{kind.group} in" in told
            assert told.endswith("404 page not found; `trainyard doctor` says what to apply")
        finally:
            await yard.kubectl("apply", "--server-side", "-f", "-", stdin=definition)
        await _runs(yard)
        await operator.leads()
        assert "pass failed" not in operator.log


async def _runs(yard: Yard) -> None:
    """A GenericJob, once it can be created."""
    await until(lambda: _applied(yard, manifests.dump(manifests.generic())), bool)
    await yard.reaches("mnist", "Running", "GenericJob")


async def _applied(yard: Yard, text: str) -> bool:
    with suppress(AssertionError):
        return "created" in await yard.kubectl("apply", "-f", "-", stdin=text)
    return False
