"""Jobs that Kueue admits: the whole controller against a modelled API server and Kueue's part."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest

from tests.queueing.kueue import FLAVOR, Kueue, condition, finished, tell, true
from tests.simulation.kueue_queues import PLURAL, Queues
from tests.simulation.network import Call, Fault
from tests.simulation.server import Key, Obj
from tests.unit.operator.test_reconciles import Yard, generic, in_yard, pytorch
from trainyard.kinds.shared.job_settings import GangBackend, Settings

SETTINGS = Settings(gang_backend=GangBackend.KUEUE)
SCHEDULER = {"t9kScheduler": {"queue": "team", "priority": 5}}


def queued(yard: Yard, quota: int = 4, **more: Any) -> Queues:
    queues = Queues(yard.server, random.Random(5), asyncio.get_running_loop(), Kueue(quota, **more))
    yard.server.observers.append(queues)
    queues.start()
    return queues


def workloads(yard: Yard) -> list[Obj]:
    return yard.server.all(PLURAL)


def only(yard: Yard) -> Obj:
    (found,) = workloads(yard)
    return found


async def let(yard: Yard, seconds: float = 5.0) -> None:
    await asyncio.sleep(seconds)


async def running(yard: Yard, key: Key) -> None:
    await let(yard)
    yard.let_run()
    await let(yard)
    assert yard.status(key)["phase"] == "Running", yard.status(key)


def end_all(yard: Yard, code: int) -> None:
    """All pods end with this exit code."""
    state: Obj = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    for pod in yard.pods():
        containers = [{"name": c["name"], "state": state} for c in pod["spec"]["containers"]]
        phase = "Failed" if code else "Succeeded"
        yard.server.set(
            Key("pods", "default", pod["metadata"]["name"]),
            status={"phase": phase, "containerStatuses": containers},
        )


def test_a_job_has_pods_once_its_workload_is_admitted() -> None:
    async def body(yard: Yard) -> None:
        key = yard.submit(pytorch(replicas=3, scheduler=SCHEDULER))
        await let(yard)
        assert yard.pods() == []
        assert yard.status(key)["phase"] == "Pending"
        told = yard.condition(key, "Running")
        assert told["reason"] == "WaitsForAdmission"
        assert "queue team" in told["message"]
        queued(yard)
        await let(yard)
        made = only(yard)
        assert made["spec"]["queueName"] == "team"
        assert made["spec"]["priority"] == 5
        assert [(each["name"], each["count"]) for each in made["spec"]["podSets"]] == [
            ("worker", 3)
        ]
        for pod in yard.pods():
            assert pod["spec"]["nodeSelector"] == {"pool": "spot"}
            assert pod["spec"]["tolerations"][0]["key"] == "spot"
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
            assert "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"]
        assert len(yard.pods()) == 3
        await running(yard, key)
        assert true(only(yard), "PodsReady")
        end_all(yard, 0)
        await let(yard)
        assert yard.status(key)["phase"] == "Succeeded"
        assert condition(only(yard), "Finished")["reason"] == "Succeeded"
        assert Kueue.usage(workloads(yard)) == 0

    in_yard(body, SETTINGS)


def test_an_eviction_costs_nothing_and_gives_back_the_quota() -> None:
    async def body(yard: Yard) -> None:
        queues = queued(yard)
        key = yard.submit(pytorch(replicas=3, policy="OnFailure", scheduler=SCHEDULER))
        await running(yard, key)
        queues.kueue.is_stopped = True
        await let(yard, 2)
        assert yard.pods()
        assert Kueue.usage(workloads(yard)) == 3, "given back while pods are there"
        yard.finish_deletions()
        await let(yard)
        assert yard.pods() == []
        assert Kueue.usage(workloads(yard)) == 0
        assert yard.status(key)["phase"] == "Pending"
        assert "ClusterQueueStopped" in yard.condition(key, "Running")["message"]
        queues.kueue.is_stopped = False
        await running(yard, key)
        assert len(yard.pods()) == 3
        status = yard.status(key)
        assert status["backoffCount"] == 0
        assert [each.get("reason") for each in status["attempts"]] == ["Evicted", None]

    in_yard(body, SETTINGS)


def test_an_eviction_is_told_by_its_reason_whatever_was_refused_before() -> None:
    """Quotas of the namespace refuse a pod of a job that Kueue then evicts."""

    async def body(yard: Yard) -> None:
        def fate(call: Call) -> Fault:
            is_creation = (call.method, call.key.plural) == ("POST", "pods")
            is_one = is_creation and call.body["metadata"]["name"].endswith("worker-0")
            return Fault.REFUSED if is_one else Fault.NONE

        queues = queued(yard)
        yard.fault = fate
        key = yard.submit(pytorch(replicas=3, policy="OnFailure", scheduler=SCHEDULER))
        await let(yard)
        assert yard.condition(key, "Running")["reason"] == "CreationRefused"
        queues.kueue.is_stopped = True
        await let(yard, 2)
        events = yard.server.all("events")
        messages = [each["message"] for each in events if each["reason"] == "Evicted"]
        assert len(messages) == 1
        assert "until Kueue admits it again: it waits for admission by Kueue" in messages[0]
        assert yard.condition(key, "Running")["reason"] == "WaitsForAdmission"

    in_yard(body, SETTINGS)


def test_a_restart_of_the_whole_job_keeps_its_admission() -> None:
    async def body(yard: Yard) -> None:
        queued(yard)
        key = yard.submit(generic(replicas=2, scheduler=SCHEDULER))
        other = yard.submit(pytorch("other", replicas=2, policy="OnFailure", scheduler=SCHEDULER))
        await running(yard, key)
        end_all(yard, 1)
        await let(yard, 30)
        yard.finish_deletions()
        await let(yard, 30)
        await running(yard, other)
        assert yard.status(other)["backoffCount"] == 1
        assert yard.status(key)["phase"] == "Failed"
        ended = {
            each["metadata"]["ownerReferences"][0]["kind"]: finished(each)
            for each in workloads(yard)
        }
        assert ended == {"GenericJob": True, "PyTorchTrainingJob": False}

    in_yard(body, SETTINGS)


def test_a_pause_gives_back_the_quota_and_a_resumed_job_queues_again() -> None:
    async def body(yard: Yard) -> None:
        queued(yard)
        key = yard.submit(pytorch(replicas=4, scheduler=SCHEDULER))
        await running(yard, key)
        yard.server.patch(key, {"spec": {"runMode": {"pause": {"enabled": True}}}})
        await let(yard, 2)
        assert Kueue.usage(workloads(yard)) == 4
        yard.finish_deletions()
        await let(yard)
        assert workloads(yard) == []
        assert yard.status(key)["phase"] == "Paused"
        second = yard.submit(generic("second", replicas=4, scheduler=SCHEDULER))
        await running(yard, second)
        yard.server.patch(key, {"spec": {"runMode": {"pause": {"enabled": False}}}})
        await let(yard)
        assert yard.status(key)["phase"] == "Resuming"
        assert "insufficient unused quota" in yard.condition(key, "Running")["message"]
        end_all(yard, 0)
        await running(yard, key)

    in_yard(body, SETTINGS)


def test_a_higher_priority_takes_the_quota_of_a_lower() -> None:
    async def body(yard: Yard) -> None:
        queued(yard)
        low = yard.submit(generic("low", replicas=4, scheduler=SCHEDULER))
        await running(yard, low)
        urgent = {"t9kScheduler": {"queue": "team", "priority": 50}}
        high = yard.submit(pytorch("high", replicas=2, scheduler=urgent))
        await let(yard)
        yard.finish_deletions()
        await let(yard)
        assert (
            "Preempted" in yard.condition(low, "Running")["message"]
            or "insufficient" in (yard.condition(low, "Running")["message"])
        )
        await running(yard, high)
        end_all(yard, 0)
        await running(yard, low)

    in_yard(body, SETTINGS)


@pytest.mark.parametrize("size", [1, 4])
def test_an_elastic_job_changes_its_size_by_slices(size: int) -> None:
    async def body(yard: Yard) -> None:
        queued(yard, quota=4)
        bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 6, "expectedReplicas": 2}
        job = pytorch(
            replicas=2, scheduler=SCHEDULER, elastic=bounds, torchrunConfig={"enabled": True}
        )
        container = {"name": "pytorch", "image": "i", "args": ["train.py"]}
        job["spec"]["replicaSpecs"][0]["template"] = {"spec": {"containers": [container]}}
        key = yard.submit(job)
        await running(yard, key)
        yard.server.patch(key, {"spec": {"elastic": {"expectedReplicas": 6}}})
        await let(yard)
        assert len(yard.pods()) == 2, "more than was admitted"
        assert Kueue.usage(workloads(yard)) == 2
        yard.server.patch(key, {"spec": {"elastic": {"expectedReplicas": size}}})
        await let(yard)
        yard.finish_deletions()
        await running(yard, key)
        assert len(yard.pods()) == size
        assert Kueue.usage(workloads(yard)) == size
        assert len(workloads(yard)) == 1

    in_yard(body, SETTINGS)


def test_a_job_of_another_controller_is_left_alone() -> None:
    """MultiKueue's gets its Workload, by which it is admitted, and nothing else."""

    async def body(yard: Yard) -> None:
        queued(yard)
        other = yard.submit(pytorch("other", managedBy="example.com/other", scheduler=SCHEDULER))
        ours = yard.submit(pytorch("ours", managedBy="trainyard.dev/operator"))
        sent = yard.submit(
            pytorch("sent", managedBy="kueue.x-k8s.io/multikueue", scheduler=SCHEDULER)
        )
        await running(yard, ours)
        owners = {pod["metadata"]["ownerReferences"][0]["name"] for pod in yard.pods()}
        assert owners == {"ours"}
        assert yard.status(other) == yard.status(sent) == {}
        assert only(yard)["metadata"]["ownerReferences"][0]["name"] == "sent"

    in_yard(body, SETTINGS)


def test_a_job_that_came_from_another_cluster_takes_its_workload_over() -> None:
    async def body(yard: Yard) -> None:
        queued(yard)
        template = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
        pod_sets = [{"name": "worker", "count": 2, "template": template}]
        spec = {"queueName": "team", "podSets": pod_sets}
        yard.server.create(PLURAL, "default", {"metadata": {"name": "sent-1"}, "spec": spec})
        job = pytorch(replicas=2, scheduler=SCHEDULER)
        job["metadata"]["labels"] = {"kueue.x-k8s.io/prebuilt-workload-name": "sent-1"}
        key = yard.submit(job)
        await running(yard, key)
        uid = yard.server.get(key)["metadata"]["uid"]
        assert only(yard)["metadata"]["ownerReferences"][0]["uid"] == uid
        end_all(yard, 0)
        await let(yard)
        assert finished(only(yard))

    in_yard(body, SETTINGS)


def test_a_label_of_kueue_is_enough_and_its_class_gives_the_priority() -> None:
    async def body(yard: Yard) -> None:
        queued(yard)
        job = pytorch(replicas=2)
        job["metadata"]["labels"] = {
            "kueue.x-k8s.io/queue-name": "team",
            "kueue.x-k8s.io/priority-class": "urgent",
        }
        key = yard.submit(job)
        await let(yard)
        assert "workloadpriorityclasses" in yard.condition(key, "Running")["message"]
        made = {"metadata": {"name": "urgent"}, "value": 1000}
        yard.server.create("workloadpriorityclasses", "", made)
        await let(yard, 60)
        spec = only(yard)["spec"]
        assert (spec["queueName"], spec["priority"]) == ("team", 1000)
        assert spec["priorityClassRef"]["kind"] == "WorkloadPriorityClass"
        await running(yard, key)

    in_yard(body, SETTINGS)


def test_pods_wait_for_a_flavor_that_is_not_known() -> None:
    async def body(yard: Yard) -> None:
        queues = queued(yard)
        flavor = Key("resourceflavors", "", "spot")
        yard.server.delete(flavor)
        key = yard.submit(pytorch(replicas=2, scheduler=SCHEDULER))
        await let(yard)
        assert yard.condition(key, "Running")["reason"] == "FlavorUnknown"
        assert yard.pods() == []
        queues.server.create("resourceflavors", "", FLAVOR)
        await running(yard, key)

    in_yard(body, SETTINGS)


def test_a_slice_that_was_replaced_holds_until_the_next_is_admitted() -> None:
    """Kueue finishes the one before it admits the other; no pod may go in between."""

    async def body(yard: Yard) -> None:
        queues = queued(yard)
        bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": 2}
        job = pytorch(replicas=2, scheduler=SCHEDULER, elastic=bounds)
        job["spec"]["torchrunConfig"] = {"enabled": True}
        container = {"name": "pytorch", "image": "i", "args": ["train.py"]}
        job["spec"]["replicaSpecs"][0]["template"] = {"spec": {"containers": [container]}}
        key = yard.submit(job)
        await running(yard, key)
        uids = {pod["metadata"]["uid"] for pod in yard.pods()}
        queues.kueue.quota = 2
        yard.server.patch(key, {"spec": {"elastic": {"expectedReplicas": 3}}})
        await let(yard)
        first = next(each for each in workloads(yard) if true(each, "Admitted"))
        changed = copy.deepcopy(first)
        tell(changed, "Finished", True, "WorkloadSliceReplaced", "Replaced", yard.clock())
        queues.kueue.quota = 0
        yard.server.set(Key(PLURAL, "default", first["metadata"]["name"]), status=changed["status"])
        await let(yard)
        assert {pod["metadata"]["uid"] for pod in yard.pods()} == uids
        queues.kueue.quota = 3
        await running(yard, key)
        assert uids < {pod["metadata"]["uid"] for pod in yard.pods()}

    in_yard(body, SETTINGS)
