"""Jobs of all four kinds that Kueue admits, from their first admission to their end."""

from __future__ import annotations

from collections.abc import Iterable

from tests.cluster.kubelet import running_kubelet
from tests.cluster.queues import Queues, running_kueue
from tests.cluster.yard import PYTORCH, Object, Yard, pytorch_job, until
from tests.queueing.kueue import Kueue, finished, true
from tests.unit.kinds import manifests
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.scheduling.kueue_workload import WORKLOADS
from trainyard.kube.errors import NotFound

JOBS = {
    "first": "PyTorchTrainingJob",
    "second": "GenericJob",
    "third": "DeepSpeedJob",
    "fourth": "ColossalAIJob",
}


def job(name: str) -> Object:
    """One of two replicas, with restarts to spend."""
    kind, scheduler = JOBS[name], {"t9kScheduler": {"queue": "team", "priority": 10}}
    if kind == "PyTorchTrainingJob":
        return pytorch_job(name, scheduler=scheduler)
    template = {"spec": {"containers": [{"name": "worker", "image": "python", "args": ["train"]}]}}
    restarts = {"policy": "OnFailure", "limit": 3}
    worker: Object = {"replicas": 2, "template": template, "restartPolicy": "OnFailure"}
    if kind == "GenericJob":
        spec = {"replicaSpecs": [{**worker, "type": "worker", "restartPolicy": restarts}]}
    elif kind == "DeepSpeedJob":
        spec = {"config": {"run": {"python": ["train.py"]}}, "worker": worker}
    else:
        launcher = {"type": "launcher", "template": {}, "restartPolicy": restarts}
        worker |= {"type": "worker", "replicas": 1, "restartPolicy": restarts}
        spec = {"torchConfig": {"script": ["train.py"]}, "replicaSpecs": [launcher, worker]}
    found: Object = manifests.changed(
        {"apiVersion": PYTORCH.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec},
        "spec.scheduler",
        scheduler,
    )
    return found


async def submit(yard: Yard, manifest: Object) -> None:
    await yard.client.create(KINDS[manifest["kind"]].resource, manifest, yard.namespace)


async def all_run(yard: Yard, names: Iterable[str], *, besides: set[str]) -> set[str]:
    """Wait until these jobs run in two pods each that are not `besides`; the UIDs of the pods."""
    for name in names:
        await until(
            lambda name=name: yard.pods(name),
            lambda pods: (
                len(pods) == 2
                and all(pod["status"]["phase"] == "Running" for pod in pods)
                and besides.isdisjoint(pod["metadata"]["uid"] for pod in pods)
            ),
        )
        await yard.reaches(name, "Running", JOBS[name])
    return {pod["metadata"]["uid"] for pod in await yard.pods() if _owner(pod) in set(names)}


def _owner(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


async def change(yard: Yard, name: str, spec: Object) -> None:
    await yard.client.patch(KINDS[JOBS[name]].resource, name, {"spec": spec}, yard.namespace)


async def usage(queues: Queues, wanted: int) -> None:
    await until(queues.usage, lambda used: used == wanted)


async def spent(yard: Yard) -> dict[str, int]:
    """Restarts that the jobs have paid for."""
    told = {}
    for name, kind in JOBS.items():
        status = (await yard.job(name, kind))["status"]
        told[name] = status.get("backoffCount") or status.get("restartCount") or 0
    return told


async def test_jobs_of_all_kinds_live_under_kueue(yard: Yard) -> None:
    """Restarts of whole jobs, preemption, pause, deletion and the end: all come to pass, no restart
    is paid for what the queue did, and all quota comes back."""
    async with (
        running_kueue(yard, Kueue(quota=8)) as queues,
        yard.operator("--gang-scheduler", "kueue"),
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        for name in JOBS:
            await submit(yard, job(name))
        begun = await all_run(yard, JOBS, besides=set())
        await usage(queues, 8)
        for pod in await yard.pods():
            assert pod["spec"]["nodeSelector"] == {"pool": "spot"}
            assert not any("kueue" in mark for mark in pod["metadata"].get("finalizers") or ())

        # The whole of a job restarts: under the same Workload.
        await kubelet.end_all("first", 1)
        again = await all_run(yard, ["first"], besides=begun)
        assert (await spent(yard))["first"] == 1

        # Something more urgent comes: all go, and come back when it has ended.
        urgent = pytorch_job(
            "urgent", 8, scheduler={"t9kScheduler": {"queue": "team", "priority": 90}}
        )
        await submit(yard, urgent)
        await until(lambda: yard.pods("urgent"), lambda pods: len(pods) == 8)
        assert {_owner(pod) for pod in await yard.pods()} == {"urgent"}
        waiting = await yard.job("second", JOBS["second"])
        told = {each["type"]: each for each in waiting["status"]["conditions"]}["Running"]
        assert told["reason"] == "WaitsForAdmission"
        await yard.reaches("urgent", "Running")
        await kubelet.end_all("urgent", 0)
        await yard.reaches("urgent", "Succeeded")
        begun = await all_run(yard, JOBS, besides=begun | again)
        assert await spent(yard) == {"first": 1, "second": 0, "third": 0, "fourth": 0}

        # Pause, and deletion.
        await change(yard, "first", {"runMode": {"pause": {"enabled": True}}})
        await yard.client.delete(KINDS[JOBS["second"]].resource, "second", yard.namespace)
        await usage(queues, 4)
        await change(yard, "first", {"runMode": {"pause": {"enabled": False}}})
        await all_run(yard, ["first"], besides=begun)
        await usage(queues, 6)

        # The end.
        for name in ("first", "third", "fourth"):
            await kubelet.end_all(name, 0)
            await yard.reaches(name, "Succeeded", JOBS[name])
        await usage(queues, 0)
        assert all(finished(each) for each in await queues.workloads())


async def test_evictions_deactivation_and_slices(yard: Yard) -> None:
    """By pods that are late, by a queue that is stopped, by hand; and an elastic job changes its
    size while it runs."""
    bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 2}
    elastic = pytorch_job(
        "first",
        scheduler={"t9kScheduler": {"queue": "team"}},
        elastic=bounds,
        torchrunConfig={"enabled": True},
    )
    (container,) = elastic["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container |= {"command": None, "args": ["train.py"]}
    async with (
        running_kueue(yard, Kueue(quota=3, checks=("capacity",))) as queues,
        yard.operator("--gang-scheduler", "kueue"),
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await submit(yard, elastic)
        message = await until(lambda: _message(yard), lambda text: "capacity" in text)
        assert "checks are not ready" in message
        assert await yard.pods() == []
        queues.kueue.ready.add("capacity")
        pods = await all_run(yard, ["first"], besides=set())

        # Slices: there is room for three, not for four.
        await change(yard, "first", {"elastic": {"expectedReplicas": 4}})
        await until(queues.workloads, lambda found: len(found) == 2)
        assert len(await yard.pods()) == 2
        await change(yard, "first", {"elastic": {"expectedReplicas": 3}})
        await until(yard.pods, lambda found: len(found) == 3)
        await usage(queues, 3)
        await change(yard, "first", {"elastic": {"expectedReplicas": 2}})
        await usage(queues, 2)
        await until(queues.workloads, lambda found: len(found) == 1)
        assert pods == await all_run(yard, ["first"], besides=set()), "those that stayed"

        # The queue is stopped, and goes on.
        queues.kueue.is_stopped = True
        await until(yard.pods, lambda found: not found)
        await usage(queues, 0)
        queues.kueue.is_stopped = False
        pods = await all_run(yard, ["first"], besides=pods)

        # Deactivated by hand, and activated again.
        (workload,) = await queues.workloads()
        name = workload["metadata"]["name"]
        await yard.client.patch(WORKLOADS, name, {"spec": {"active": False}}, yard.namespace)
        await until(yard.pods, lambda found: not found)
        await usage(queues, 0)
        assert "deactivated" in await until(
            lambda: _message(yard), lambda text: "deactivated" in text
        )
        await yard.client.patch(WORKLOADS, name, {"spec": {"active": True}}, yard.namespace)
        pods = await all_run(yard, ["first"], besides=pods)

        # Its pods do not get ready in time; those that come after them do.
        kubelet.fate = lambda pod: "run" if queues.has_requeued else "wait"
        queues.kueue.ready_seconds, queues.kueue.backoff_seconds = 1.0, 1.0
        queues.kueue.is_stopped = True
        await until(yard.pods, lambda found: not found)
        queues.kueue.is_stopped = False
        await until(queues.workloads, lambda found: bool(found[0]["status"].get("requeueState")))
        queues.kueue.ready_seconds = None
        await all_run(yard, ["first"], besides=pods)
        (workload,) = await until(queues.workloads, lambda found: true(found[0], "PodsReady"))

        # Somebody deletes the Workload: the job asks anew.
        await yard.client.delete(WORKLOADS, name, yard.namespace)
        await until(lambda: _uid(queues), lambda uid: uid not in ("", workload["metadata"]["uid"]))
        await all_run(yard, ["first"], besides=set())
        status = (await yard.job("first"))["status"]
        assert not status["backoffCount"]


async def _message(yard: Yard) -> str:
    try:
        status = (await yard.job("first")).get("status") or {}
    except NotFound:
        return ""
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    return str(conditions.get("Running", {}).get("message", ""))


async def _uid(queues: Queues) -> str:
    found = await queues.workloads()
    return str(found[0]["metadata"]["uid"]) if found else ""
