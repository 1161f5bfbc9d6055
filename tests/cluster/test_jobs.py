"""Jobs from their creation to their end, by `trainyard operator` on a real API server."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.cluster.kubelet import Kubelet, running_kubelet
from tests.cluster.plane import START_SECONDS
from tests.cluster.yard import PYTORCH, Object, Yard, pytorch_job, until
from trainyard.kinds.shared import labels
from trainyard.kube.client import Selection
from trainyard.kube.resources import PODS, SERVICES

PATIENCE = f"--timeout={START_SECONDS:g}s"
WORKERS = ("worker-0", "worker-1")
NAME = f"{PYTORCH.full_name}/digits"


async def submit(yard: Yard, job: Object) -> None:
    await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job))


async def running(yard: Yard, kubelet: Kubelet, job: str, *, besides: set[str]) -> set[str]:
    """Wait for both replicas to run in pods that are not `besides`; the UIDs of these."""
    await until(
        lambda: yard.pods(job),
        lambda pods: (
            len(pods) == len(WORKERS)
            and all(pod["status"]["phase"] == "Running" for pod in pods)
            and besides.isdisjoint(pod["metadata"]["uid"] for pod in pods)
        ),
    )
    await yard.reaches(job, "Running")
    return {pod["metadata"]["uid"] for pod in await yard.pods(job)}


async def test_a_job_runs_and_succeeds(yard: Yard) -> None:
    """Its pods and Services belong to it; its status tells of each step."""
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits"))
        job = await yard.reaches("digits", "Running")
        services, _ = await yard.client.list(SERVICES, yard.namespace)
        pods = await yard.pods()
        assert {pod["metadata"]["name"][-9:] for pod in pods} == {"-worker-0", "-worker-1"}
        assert services
        for owned in [*pods, *services]:
            assert owned["metadata"]["ownerReferences"] == [
                {
                    "apiVersion": PYTORCH.api_version,
                    "kind": PYTORCH.kind,
                    "name": "digits",
                    "uid": job["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ]
            assert owned["metadata"]["labels"][labels.JOB_UID] == job["metadata"]["uid"]
        await kubelet.end_all("digits", 0)
        await yard.kubectl("wait", "--for=condition=Completed", PATIENCE, NAME)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"]["aggregate"]["succeeded"] == 2
        assert job["status"]["completionTime"]
        events = await yard.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
        assert {"Created", "NewReplica", "Running", "Succeeded"} <= set(events.split())


async def test_a_failure_restarts_the_job_once(yard: Yard) -> None:
    """One replica fails, its peer dies along: one incident, one restart, then success."""
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits"))
        first = await running(yard, kubelet, "digits", besides=set())
        await kubelet.end_all("digits", 1)
        second = await running(yard, kubelet, "digits", besides=first)
        await kubelet.end_all("digits", 0)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"]["backoffCount"] == 1
        assert [each.get("exitCode") for each in job["status"]["attempts"]] == [1, None]
        assert set(kubelet.seen) == first | second


async def test_what_a_kubelet_evicts_comes_back_for_nothing(yard: Yard) -> None:
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits", restart_policy="Never"))
        first = await running(yard, kubelet, "digits", besides=set())
        await kubelet.evict(kubelet.pod("digits", "worker-1"))
        second = await running(yard, kubelet, "digits", besides=first)
        # The API's own eviction, as `kubectl drain` asks for it.
        pod = kubelet.pod("digits", "worker-1")["metadata"]["name"]
        await yard.kubectl("delete", "pod", pod, "--wait=false")
        await running(yard, kubelet, "digits", besides=first | second)
        await kubelet.end_all("digits", 0)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"].get("backoffCount", 0) == 0
        assert job["status"]["attempts"][0]["reason"] == "Evicted"


async def test_a_failure_for_good_fails_the_job(yard: Yard) -> None:
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits", restart_policy="Never"))
        await running(yard, kubelet, "digits", besides=set())
        await kubelet.end(kubelet.pod("digits", "worker-1"), 3)
        job = await yard.reaches("digits", "Failed")
        await yard.kubectl("wait", "--for=condition=Failed", PATIENCE, NAME)
        conditions = {each["type"]: each for each in job["status"]["conditions"]}
        assert conditions["Completed"]["status"] == "True"
        assert "3" in conditions["Failed"]["message"]


async def resized(yard: Yard, wanted: int) -> None:
    """Wait until there are so many pods, and status says so."""
    await until(lambda: yard.pods("digits"), lambda pods: len(pods) == wanted)
    await until(lambda: yard.job("digits"), lambda job: job["status"].get("replicas") == wanted)


async def test_kubectl_scale_resizes_an_elastic_job(yard: Yard) -> None:
    elastic = {"enabled": True, "minReplicas": 1, "expectedReplicas": 2, "maxReplicas": 4}
    job = pytorch_job("digits", torchrunConfig={"enabled": True}, elastic=elastic)
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["args"] = container.pop("command")
    async with yard.operator(), running_kubelet(yard.client, yard.namespace):
        await submit(yard, job)
        await until(lambda: yard.pods("digits"), lambda pods: len(pods) == 2)
        for wanted in (4, 1):
            await yard.kubectl("scale", f"--replicas={wanted}", NAME)
            await resized(yard, wanted)
        scale = json.loads(await yard.kubectl("get", "--raw", _scale(yard, "digits")))
        assert scale["status"]["replicas"] == 1
        matching, _ = await yard.client.list(
            PODS, yard.namespace, Selection(scale["status"]["selector"])
        )
        assert len(matching) == 1


def _scale(yard: Yard, name: str) -> str:
    return PYTORCH.path(yard.namespace, name, "scale")


async def test_an_invalid_job_fails_with_every_path(yard: Yard) -> None:
    """A server without our admission stores what a definition cannot refuse."""
    yard.judges_pods()
    job = pytorch_job("digits")
    template = job["spec"]["replicaSpecs"][0]["template"]
    template["spec"]["containers"][0]["commands"] = ["train"]
    template["spec"]["nodeNmae"] = "a"
    async with yard.operator():
        await submit(yard, job)
        failed = await yard.reaches("digits", "Failed")
        conditions = {each["type"]: each for each in failed["status"]["conditions"]}
        assert conditions["Failed"]["reason"] == "InvalidSpec"
        assert await yard.pods() == []


async def test_a_deadline_ends_the_job(yard: Yard) -> None:
    async with yard.operator(), running_kubelet(yard.client, yard.namespace):
        await submit(yard, pytorch_job("digits", runPolicy={"activeDeadlineSeconds": 2}))
        job = await yard.reaches("digits", "Failed")
        conditions = {each["type"]: each for each in job["status"]["conditions"]}
        assert conditions["Failed"]["reason"] == "DeadlineExceeded"
        # The pods stay, but are told to stop.
        pods = await until(
            lambda: yard.pods("digits"),
            lambda pods: all("activeDeadlineSeconds" in pod["spec"] for pod in pods),
        )
        assert len(pods) == 2


async def test_pause_and_resume(yard: Yard) -> None:
    job = pytorch_job("digits", runMode={"pause": {"enabled": False}})
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, job)
        first = await running(yard, kubelet, "digits", besides=set())
        for enabled in ("true", "false"):
            patch = f'{{"spec":{{"runMode":{{"pause":{{"enabled":{enabled}}}}}}}}}'
            await yard.kubectl("patch", NAME, "--type=merge", "-p", patch)
            if enabled == "true":
                await yard.reaches("digits", "Paused")
                await until(lambda: yard.pods("digits"), lambda pods: not pods)
        await running(yard, kubelet, "digits", besides=first)
        await kubelet.end_all("digits", 0)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"].get("backoffCount", 0) == 0


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_deletion_cascades_as_kubectl_asks(cascade: str, yard: Yard) -> None:
    if not yard.plane.collects:
        pytest.skip("not judged: no kube-controller-manager, hence no garbage collector")
    async with yard.operator() as operator, running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits"))
        pods = await running(yard, kubelet, "digits", besides=set())
        await yard.kubectl("delete", NAME, f"--cascade={cascade}", PATIENCE)
        if cascade == "foreground":
            assert await yard.pods() == []
        if cascade == "orphan":
            kept = await yard.pods()
            assert {pod["metadata"]["uid"] for pod in kept} == pods
            assert not any("ownerReferences" in pod["metadata"] for pod in kept)
        else:
            await until(yard.pods, lambda left: not left)
        # No replica was created again while the job went.
        assert set(kubelet.seen) == pods
        await asyncio.wait_for(operator.answer("/healthz"), 120)
        assert "pass failed" not in operator.log


async def test_a_changed_spec_is_refused_or_has_no_effect(yard: Yard) -> None:
    """Rules in CEL refuse it where the server knows them; elsewhere the operator warns."""
    job = pytorch_job("digits")
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, job)
        first = await running(yard, kubelet, "digits", besides=set())
        job["spec"]["runPolicy"] = {"backoffLimit": 9}
        text = json.dumps(job)
        if yard.plane.version >= (1, 25):
            errors = await yard.kubectl("apply", "-f", "-", stdin=text, fails=True)
            assert "cannot be changed after creation" in errors
            return
        await yard.kubectl("apply", "-f", "-", stdin=text)
        await until(
            lambda: yard.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"),
            lambda reasons: "SpecDrift" in reasons,
        )
        assert set(kubelet.seen) == first


async def test_kubectl_scale_gives_a_size_that_was_left_open(yard: Yard) -> None:
    """Nothing fills in what a manifest leaves out on a server without our admission."""
    elastic = {"enabled": True, "minReplicas": 1, "maxReplicas": 4}
    await submit(yard, pytorch_job("digits", torchrunConfig={"enabled": True}, elastic=elastic))
    await yard.kubectl("scale", "--replicas=3", NAME)
    assert (await yard.job("digits"))["spec"]["elastic"]["expectedReplicas"] == 3


async def test_kubectl_scale_does_nothing_to_a_job_that_is_not_elastic(yard: Yard) -> None:
    """A server with CEL refuses it; without, the job is left as it is."""
    has_cel = yard.plane.version >= (1, 25)
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        await submit(yard, pytorch_job("digits"))
        first = await running(yard, kubelet, "digits", besides=set())
        await yard.kubectl("scale", "--replicas=3", NAME, fails=has_cel)
        if not has_cel:
            generation = (await yard.job("digits"))["metadata"]["generation"]
            await until(
                lambda: yard.job("digits"),
                lambda job: job["status"]["observedGeneration"] == generation,
            )
        assert (await yard.job("digits"))["status"]["phase"] == "Running"
        await kubelet.end_all("digits", 0)
        await yard.reaches("digits", "Succeeded")
        assert set(kubelet.seen) == first
