"""What breaks in a cluster's life: operators die, API servers restart, etcd is compacted."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import signal
from contextlib import AsyncExitStack

import aiohttp
import pytest

from tests.cluster.kubelet import FailsOnce, running_kubelet
from tests.cluster.plane import RunningControlPlane
from tests.cluster.yard import PYTORCH, Operator, Yard, pytorch_job, until
from tests.tools import soak
from trainyard.kube.resources import PODS

ALONE = "--no-leader-elect"


async def test_an_operator_killed_again_and_again_loses_and_doubles_nothing(yard: Yard) -> None:
    """Each of four jobs fails once and then succeeds, while operators are killed at random."""
    names = [f"job-{number}" for number in range(4)]
    rng, fate = random.Random(7), FailsOnce()
    async with running_kubelet(yard.client, yard.namespace, fate):
        documents = [pytorch_job(name) for name in names]
        for document in documents:
            await yard.client.create(PYTORCH, document, yard.namespace)
        for _ in range(soak(6, 40)):
            async with yard.operator(ALONE) as operator:
                await operator.leads()
                await asyncio.sleep(rng.uniform(0.0, 2.0))  # the moment of death is what varies
                await operator.kill()
        async with yard.operator(ALONE):
            for name in names:
                job = await yard.reaches(name, "Succeeded")
                assert job["status"]["backoffCount"] == 1
                assert len(job["status"]["attempts"]) == 2
        assert fate.doubled == []


def _attempt(pod: object) -> int:
    from trainyard.lifecycle.observed import Pod

    assert isinstance(pod, dict)
    return Pod.decode(pod).attempt


async def restart(plane: RunningControlPlane, number: signal.Signals) -> None:
    """End the API server with a signal, start it, and wait until it serves."""
    await asyncio.to_thread(plane.stop_apiserver, number)
    plane.start_apiserver()
    await asyncio.to_thread(plane.until_ready)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
async def test_a_restart_of_the_api_server_is_survived(number: signal.Signals, yard: Yard) -> None:
    """Its operator loses the Lease if that takes long, and takes it again.

    On SIGTERM an API server takes no connection any more, but waits for watches to end.
    """
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(yard.operator())
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Running")
        await restart(yard.plane, number)
        await kubelet.end(kubelet.pod("digits", "worker-1"), 1)
        await until(
            lambda: yard.pods("digits"),
            lambda pods: len(pods) == 2 and all(_attempt(pod) == 2 for pod in pods),
        )
        await until(
            lambda: yard.job("digits"), lambda job: job["status"]["aggregate"].get("running") == 2
        )
        await kubelet.end_all("digits", 0)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"]["backoffCount"] == 1
        assert len(kubelet.seen) == 4
        assert "Traceback" not in operator.log


@pytest.mark.parametrize("options", [(), (ALONE,)], ids=["elected", "alone"])
async def test_an_operator_waits_for_an_api_server_that_is_not_up(
    options: tuple[str, ...], yard: Yard
) -> None:
    """And it still finds out how old that is: a field that nobody knows is not dropped."""
    yard.judges_pods()
    await asyncio.to_thread(yard.plane.stop_apiserver)
    try:
        async with yard.operator(*options) as operator:
            await until(lambda: _read(operator), lambda log: "no answer from" in log)
            yard.plane.start_apiserver()
            await asyncio.to_thread(yard.plane.until_ready)
            job = pytorch_job("digits")
            job["spec"]["replicaSpecs"][0]["template"]["spec"]["nodeNmae"] = "a"
            await yard.client.create(PYTORCH, job, yard.namespace)
            await yard.reaches("digits", "Failed")
    finally:
        if not yard.plane.serves:
            yard.plane.start_apiserver()
            await asyncio.to_thread(yard.plane.until_ready)


async def _read(operator: Operator) -> str:
    return operator.log


async def test_a_node_that_is_silent_for_a_while_costs_nothing(yard: Yard) -> None:
    """Its replicas are Unknown until it is back, and then run as before."""
    async with (
        yard.operator() as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Running")
        before = set(kubelet.seen)
        try:
            await kubelet.report("Unknown")
            job = await yard.reaches("digits", "Unknown")
            assert job["status"]["aggregate"]["unknown"] == 2
        finally:
            await kubelet.report("True")
        job = await yard.reaches("digits", "Running")
        assert job["status"]["aggregate"]["running"] == 2
        assert job["status"].get("backoffCount", 0) == 0
        assert set(kubelet.seen) == before
        assert "Traceback" not in operator.log


async def compact(plane: RunningControlPlane) -> None:
    """Forget every revision of etcd but the last."""
    base = f"http://127.0.0.1:{plane.etcd_port}/v3/kv"
    key = base64.b64encode(b"\0").decode()
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base}/range", json={"key": key, "limit": 1}) as answer:
            revision = (await answer.json())["header"]["revision"]
        body = {"revision": revision, "physical": True}
        async with session.post(f"{base}/compaction", json=body) as answer:
            assert answer.status == 200, await answer.text()


async def test_a_watch_from_before_a_compaction_is_made_good(yard: Yard) -> None:
    """What happened while the operator slept is seen, deletions too, though no watch can tell."""
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(yard.operator(ALONE, "--job-metrics"))
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        for name in ("lost", "deleted"):
            await yard.client.create(PYTORCH, pytorch_job(name), yard.namespace)
            await yard.reaches(name, "Running")
        before = set(kubelet.seen)
        operator.process.send_signal(signal.SIGSTOP)
        pod = kubelet.pod("lost", "worker-1")["metadata"]["name"]
        await yard.client.delete(PODS, pod, yard.namespace, grace_seconds=0)
        await yard.client.delete(PYTORCH, "deleted", yard.namespace, propagation="Background")
        await yard.client.create(PYTORCH, pytorch_job("new"), yard.namespace)
        await compact(yard.plane)
        await restart(yard.plane, signal.SIGKILL)
        operator.process.send_signal(signal.SIGCONT)
        await yard.reaches("new", "Running")
        await until(
            lambda: yard.pods("lost"),
            lambda pods: len(pods) == 2 and all(_attempt(pod) == 2 for pod in pods),
        )
        if yard.plane.collects:
            await until(lambda: yard.pods("deleted"), lambda pods: not pods)
        assert len(set(kubelet.seen) - before) == 4
        assert "resourceVersion expired" in operator.log
        metrics = await operator.answer("/metrics")
        assert 'job_name="deleted"' not in metrics
        assert json.loads(await yard.kubectl("get", "pj", "-o", "json"))["items"]
