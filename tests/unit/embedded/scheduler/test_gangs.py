"""Replicas that need each other are placed together though their job waits in no queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.embedded.scheduler.test_scheduler import CAPACITY, GROUPS, Cluster, running
from trainyard.embedded.cluster_objects import Deletion
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import Workload

Object = dict[str, Any]
GPUS = {"limits": {"nvidia.com/gpu": 2}}
AT_ONCE = Deletion(grace_seconds=0)
SERVICE = {"ports": [{"port": 2222}]}


class Yard(Cluster):
    """A cluster with jobs, whose controller is the test."""

    async def job(self, name: str, obj: Object) -> Workload:
        """Store a job, and say in its status that all of its replicas are to be created."""
        kind = KINDS[obj["kind"]]
        obj = {**obj, "apiVersion": kind.api_version}
        obj["metadata"] = {"name": name, "namespace": "default"}
        stored = await self.registry.create(kind.full_name, obj)
        workload = kind.describe(kind.model.model_validate(stored), Settings())
        await self.tell(workload, dict.fromkeys(workload.keys, "Creating"))
        return workload

    async def tell(self, workload: Workload, phases: dict[Any, str], **status: Any) -> None:
        """Write the job's status."""
        replicas = [{"name": workload.pod_name(key), "phase": phases[key]} for key in phases]

        def change(obj: Object) -> Object:
            return {**obj, "status": {"tasks": [{"replicas": replicas}], **status}}

        name = KINDS[workload.kind].full_name
        await self.registry.update(name, "default", workload.name, change, subresource="status")

    async def start(self, workload: Workload, *ranks: int) -> None:
        """Create the pods of these ranks, or all of them."""
        for rank in ranks or range(len(workload.keys)):
            key = workload.keys[rank]
            built = workload.build_pod(key, 1, pod_group=workload.name, resumed=False)
            await self.registry.create("pods", built)

    async def runs(self, workload: Workload, *ranks: int) -> None:
        """Exactly these of the job's pods are bound, once all have been judged."""
        pods = {pod["metadata"]["name"] for pod in self.pods()}
        names = {workload.pod_name(key) for key in workload.keys} & pods
        await self.until(lambda: all(self.verdict(pod) for pod in self.pods()))
        wanted = {workload.pod_name(workload.keys[rank]) for rank in ranks}
        assert {name for name in names if self.is_bound(name)} == wanted


def replicas(name: str, count: int, resources: Object = GPUS, **fields: Any) -> Object:
    container = {"name": "main", "image": "i", "args": ["a.py"], "resources": resources}
    return {
        "type": name,
        "replicas": count,
        "template": {"spec": {"containers": [container]}},
        **fields,
    }


def pytorch(*types: Object, **spec: Any) -> Object:
    return {"kind": "PyTorchTrainingJob", "spec": {"replicaSpecs": list(types), **spec}}


def generic(*types: Object, **spec: Any) -> Object:
    return {"kind": "GenericJob", "spec": {"replicaSpecs": list(types), **spec}}


ALONE = {"debug": {"enabled": True}}
ELASTIC = {
    "torchrunConfig": {"enabled": True},
    "elastic": {"enabled": True, "minReplicas": 2, "expectedReplicas": 3},
}
CASES: dict[str, tuple[Object, tuple[int, ...]]] = {
    "all or none": (pytorch(replicas("worker", 3)), ()),
    "those without devices wait as well": (
        pytorch(replicas("ps", 1, {}), replicas("worker", 3)),
        (),
    ),
    "all, where they fit": (pytorch(replicas("worker", 2), replicas("ps", 1, {})), (0, 1, 2)),
    "an elastic job from its minimum, rank 0 first": (
        pytorch(replicas("zoo", 1), replicas("ape", 2, scalingWeight=1), **ELASTIC),
        (0, 1),
    ),
    "a GenericJob whose replicas find each other": (
        generic(replicas("worker", 3), service=SERVICE),
        (),
    ),
    "a GenericJob whose replicas do not": (generic(replicas("worker", 3)), (0, 1)),
    "replicas that only wait for a developer": (
        pytorch(replicas("worker", 3), runMode=ALONE),
        (0, 1),
    ),
    "more pods than the machine has room for": (pytorch(replicas("worker", 101, {})), ()),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_starts_of_a_job_that_does_not_fit(case: str) -> None:
    job, ranks = CASES[case]
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        workload = await yard.job("train", job)
        await yard.start(workload)
        await yard.runs(workload, *ranks)


async def test_what_the_job_lacks_is_said_once_and_in_all() -> None:
    """Before its last pod is there, and about the job, not about each pod."""
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        workload = await yard.job("train", pytorch(replicas("worker", 3)))
        await yard.start(workload, 0, 1)
        text = (
            "the 3 pods that start together need 6 nvidia.com/gpu, this machine has 4; to pretend "
            "the devices, start the cluster with --resource nvidia.com/gpu=6"
        )
        await yard.until(lambda: yard.message(workload.pod_name(workload.keys[1])) == text)
        await yard.start(workload, 2)
        await yard.until(lambda: yard.message(workload.pod_name(workload.keys[2])) == text)
        assert yard.warnings() == [f"cannot schedule train: {text}"]


async def test_replicas_without_peers_lack_the_same_once() -> None:
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        lacking = {"limits": {"nvidia.com/gpu": 5}}
        workload = await yard.job("tasks", generic(replicas("worker", 3, lacking)))
        await yard.start(workload)
        await yard.runs(workload)
        assert len(yard.warnings()) == 1
        assert "needs 5 nvidia.com/gpu, this machine has 4" in yard.warnings()[0]


async def test_two_jobs_do_not_hold_half_each() -> None:
    """Their pods come in turns; the one that is complete first starts."""
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        first = await yard.job("first", pytorch(replicas("worker", 2)))
        second = await yard.job("second", pytorch(replicas("worker", 2)))
        await yard.start(first, 0)
        await yard.start(second, 0)
        await yard.start(second, 1)
        for key in second.keys:
            await yard.until_bound(second.pod_name(key))
        await yard.start(first, 1)
        names = [first.pod_name(key) for key in first.keys]
        await yard.until(lambda: all("0 are free" in yard.message(name) for name in names))
        await yard.runs(first)
        for key in second.keys:
            await yard.end(second.pod_name(key))
        for key in first.keys:
            await yard.until_bound(first.pod_name(key))


async def test_one_that_starts_again_joins_those_that_run() -> None:
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        workload = await yard.job("train", pytorch(replicas("worker", 2)))
        await yard.start(workload)
        await yard.runs(workload, 0, 1)
        name = workload.pod_name(workload.keys[1])
        await yard.registry.delete("pods", "default", name, AT_ONCE)
        await yard.until(lambda: len(yard.pods()) == 1)
        await yard.start(workload, 1)
        await yard.runs(workload, 0, 1)


async def test_one_that_starts_again_waits_for_peers_that_do_too() -> None:
    """A pod that is being deleted holds its devices, and is no peer."""
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        workload = await yard.job("train", pytorch(replicas("worker", 2)))
        await yard.start(workload)
        await yard.runs(workload, 0, 1)
        names = [workload.pod_name(key) for key in workload.keys]

        await yard.registry.delete("pods", "default", names[0])
        await yard.registry.delete("pods", "default", names[1], AT_ONCE)
        await yard.until(lambda: len(yard.pods()) == 1)
        await yard.start(workload, 1)
        await yard.until(lambda: "2 start together" in yard.message(names[1]))
        assert not yard.is_bound(names[1])


@pytest.mark.parametrize("scheduler", [None, {"t9kScheduler": {"queue": "default"}}])
async def test_one_whose_peers_have_ended_starts_alone(scheduler: Object | None) -> None:
    """In a queue as well: those that have succeeded are not to come again."""
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        spec = {"scheduler": scheduler} if scheduler else {}
        workload = await yard.job("train", generic(replicas("worker", 2), service=SERVICE, **spec))
        if scheduler:
            (group,) = (d for d in workload.dependents if d.resource.plural == "podgroups")
            await yard.registry.create(GROUPS, group.manifest("train"))
        await yard.start(workload, 1)
        name = workload.pod_name(workload.keys[1])
        await yard.until(lambda: bool(yard.message(name)))
        assert not yard.is_bound(name)
        first, second = workload.keys
        await yard.tell(workload, {first: "Succeeded", second: "Creating"})
        await yard.until_bound(name)


async def test_replicas_that_restart_one_by_one_start_together_once() -> None:
    async with running() as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        workload = await yard.job("train", generic(replicas("worker", 2), service=SERVICE))
        phases = dict.fromkeys(workload.keys, "Creating")
        await yard.tell(workload, phases, startTime="2026-01-01T12:00:00Z")
        await yard.start(workload, 1)
        await yard.until_bound(workload.pod_name(workload.keys[1]))


async def test_strict_scheduling_places_every_job_together() -> None:
    """There CPU can be short for half a job, too."""
    async with running(is_strict=True) as cluster:
        yard = Yard(cluster.registry, cluster.scheduler)
        half = {"requests": {"cpu": f"{CAPACITY['cpu'] // 2}m"}}
        workload = await yard.job("train", pytorch(replicas("worker", 3, half)))
        await yard.start(workload)
        await yard.runs(workload)
        assert "need 3 cpu, this machine has 2" in yard.message(workload.pod_name(workload.keys[0]))
