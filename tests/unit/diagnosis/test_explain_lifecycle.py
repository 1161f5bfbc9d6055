"""What `explain` makes of statuses that the controller itself wrote.

The texts and reasons of the lifecycle are not copied here: a job is driven into trouble, and the
answer must name it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.objects import situation
from tests.unit.lifecycle.world import START, World, elastic, generic, pytorch
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle.completion.invalid_object import InvalidObject, plan_invalid
from trainyard.lifecycle.observed import Conflict, Refusal
from trainyard.schema.times import render as timestamp


def explained(world: World) -> str:
    """The answer about the world's job as it is now."""
    metadata = {**world.job["metadata"], "creationTimestamp": timestamp(START)}
    job = {**world.job, "metadata": metadata, "status": world.status or {}}
    events = [
        {
            "involvedObject": {"kind": job["kind"], "name": "train"},
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "lastTimestamp": timestamp(world.now),
        }
        for event in world.events
    ]
    known = situation(job, list(world.pods.values()), events, now=world.now)
    return render(known, diagnosis.causes(known))


def unplaced(world: World, replica: str, message: str) -> None:
    """As a scheduler marks a pod that it has no place for."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    world.pods[world.name(replica)]["status"]["conditions"] = [condition]


def test_a_job_that_runs_has_nothing_wrong() -> None:
    world = World(pytorch()).running()
    assert "nothing is wrong with it that can be seen. 4 of 4 replicas run." in explained(world)


def test_a_new_job_is_being_started() -> None:
    world = World(pytorch(workers=2)).settle()
    assert "its replicas are being started: worker-0 (Creating)" in explained(world)


def test_a_restart_is_told_with_its_cause_and_time() -> None:
    world = World(pytorch()).running()
    world.exit("2", 137).exit("0", 1).exit("1", 1).exit("3", 1).settle().advance(4)
    text = explained(world)
    assert "worker-2 failed (exit code 137); the next try is in 6s" in text
    assert "1 of 3 restarts are used up" in text
    world.advance(6).settle()
    assert "worker-2 failed (exit code 137), and replicas are started again" in explained(world)
    world.run().settle()
    assert "nothing is wrong" in explained(world)


def test_an_eviction_is_told_as_one_and_not_as_a_failure_of_the_program() -> None:
    world = World(pytorch()).running()
    reason = "EvictionByEvictionAPI"
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    world.pods[world.name("2")]["status"]["conditions"] = [target]
    text = explained(world.take(world.name("2")).settle())
    assert f"worker-2 was taken away ({reason}), and replicas are started again" in text
    assert "its pod was evicted, as `kubectl drain` does" in text
    assert "ended with an error" not in text


def test_a_replica_that_waits_alone_is_told_with_its_time() -> None:
    world = World(generic(limit=3)).running()
    world.exit("1", 5, message="ValueError: nan").settle()
    text = explained(world)
    assert "worker-1 failed (exit code 5); the next try is in 10s" in text
    assert "| ValueError: nan" in text


def test_a_spent_budget_is_told() -> None:
    world = World(pytorch(run_policy={"backoffLimit": 1})).running()
    world.exit("1", 9).settle().advance(10).settle().run().settle()
    world.exit("3", 9).settle()
    text = explained(world)
    assert "is Failed: worker-3 failed (exit code 9)" in text
    assert "restarts are used up: 1 of 1" in text
    assert "a restart will not help: it has failed 2 times in a row so" in text
    assert "more restarts are allowed" not in text


def test_more_restarts_are_advised_only_where_they_may_help() -> None:
    world = World(pytorch(run_policy={"backoffLimit": 1})).running()
    world.exit("1", 9).settle().advance(10).settle().run().settle()
    world.exit("3", 139).settle()
    assert "more restarts are allowed by runPolicy.backoffLimit" in explained(world)


def test_a_missing_module_is_not_mended_by_restarts() -> None:
    words = 'Traceback (most recent call last):\n  File "/work/train.py", line 1, in <module>\n'
    words += "    import nets\nModuleNotFoundError: No module named 'nets'"
    world = World(pytorch(run_policy={"backoffLimit": 1})).running()
    world.exit("1", 9).settle().advance(10).settle().run().settle()
    world.exit("3", 1, message=words).settle()
    text = explained(world)
    assert "a restart will not help before that is corrected" in text
    assert "more restarts are allowed" not in text


def test_memory_that_did_not_suffice_is_told() -> None:
    world = World(pytorch(policy="Never")).running()
    world.exit("1", 137, reason="OOMKilled").settle()
    assert "worker-1 failed (exit code 137): it used more memory than it may" in explained(world)


def test_an_eviction_is_told() -> None:
    world = World(pytorch()).running()
    world.evict("1").settle()
    assert "worker-1 was taken away (Evicted)" in explained(world)


def test_a_deadline_is_told() -> None:
    world = World(pytorch(run_policy={"activeDeadlineSeconds": 60})).running()
    world.advance(61).settle()
    assert "is Failed: it ran longer than its deadline of 60 s" in explained(world)


def test_success_is_told() -> None:
    world = World(pytorch()).running()
    for replica in "0123":
        world.exit(replica, 0)
    assert "it has done its work" in explained(world.settle())


@pytest.mark.parametrize(
    ("mode", "words"),
    [("pause", "is Paused: its pods are deleted"), ("debug", "it is in debug mode")],
)
def test_a_mode_is_told(mode: str, words: str) -> None:
    world = World(pytorch(runMode={mode: {"enabled": True}})).settle().run().settle()
    assert words in explained(world)


def test_a_missing_gang_scheduler_is_told() -> None:
    job = pytorch(scheduler={"t9kScheduler": {"queue": "q"}})
    world = World(job, Settings(gang_backend=GangBackend.NONE)).settle()
    assert "no scheduler here places pods together" in explained(world)
    assert explained(world).count("gangScheduler") == 2, "evidence and advice, and no warning"


def test_a_refused_creation_is_told() -> None:
    world = World(pytorch())
    name = world.name("worker-0")
    message = 'pods "x" is forbidden: exceeded quota: team, requested: pods=1'
    world.refusals = (Refusal(PODS, name, 403, message, START, 1),)
    world.step()
    assert "the namespace's quota does not allow what it needs" in explained(world)


def test_a_held_name_is_told() -> None:
    world = World(pytorch())
    world.conflicts = (Conflict(SERVICES, world.workload.base, "Service default/other"),)
    world.step()
    text = explained(world)
    assert "a name that it needs is held by an object of somebody else" in text
    assert "Service default/other" in text


def test_a_pod_without_a_place_is_told() -> None:
    world = World(pytorch(workers=2)).settle()
    for replica in "01":
        unplaced(world, replica, "0/1 nodes are available: 1 Insufficient memory.")
    world.settle()
    text = explained(world)
    assert "worker-0, worker-1 cannot be scheduled: 0/1 nodes are available" in text
    assert "Also" not in text


def test_replicas_that_run_wait_for_one_without_a_place() -> None:
    world = World(pytorch(workers=3)).settle().run("0", "1").settle()
    unplaced(world, "2", "0/1 nodes are available: 1 Insufficient cpu.")
    text = explained(world.settle())
    assert "is Pending: worker-2 cannot be scheduled" in text
    assert "Also: 2 of 3 replicas run and wait for their peers" in text


def test_an_elastic_job_below_its_size_is_told() -> None:
    world = World(elastic(1, 3, 3)).settle().run("0").settle()
    unplaced(world, "1", "0/1 nodes are available: 1 Insufficient cpu.")
    unplaced(world, "2", "0/1 nodes are available: 1 Insufficient cpu.")
    text = explained(world.settle())
    assert "worker-1, worker-2 cannot be scheduled" in text
    assert "it is elastic and runs with 1 of 3 replicas" in text
    assert "rendezvous" not in text


def test_a_pod_that_does_not_go_is_told() -> None:
    world = World(pytorch()).running()
    world.take(world.name("1"), 30).step()
    world.advance(60).step()
    assert "worker-1 is stuck while it terminates" in explained(world)


def test_an_invalid_spec_is_told() -> None:
    world = World(pytorch())
    problems = ["spec.replicaSpecs[0].replicas: must be 0 or more", "spec.x: unknown field"]
    job = InvalidObject("PyTorchTrainingJob", "train", 1, problems)
    world.status = plan_invalid(job, None, START).status
    text = explained(world)
    assert "its spec is invalid" in text
    lines = [line.strip() for line in text.splitlines()]
    assert all(problem in lines for problem in problems)


def test_a_disk_that_is_full_is_told_whatever_the_kind() -> None:
    words: dict[str, Any] = {"message": "OSError: [Errno 28] No space left on device"}
    for job in (pytorch(policy="Never"), generic()):
        world = World(job).running()
        world.exit("0", 1, **words).settle()
        assert "a volume or the disk is full" in explained(world)


def ruled(action: str, code: int, **run_policy: Any) -> dict[str, Any]:
    """A `runPolicy` with one rule for an exit code."""
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}
    return {"podFailurePolicy": {"rules": [rule]}, **run_policy}


def test_the_rule_that_failed_a_job_is_told() -> None:
    world = World(pytorch(policy="Never", run_policy=ruled("FailJob", 42))).running()
    world.exit("2", 42).advance(5).settle()
    text = explained(world)
    assert "worker-2 failed (exit code 42)" in text
    assert "podFailurePolicy.rules[0] (exit code 42) fails the job" in text
    assert "change that rule of spec.runPolicy.podFailurePolicy" in text
    assert "restartPolicy is Never" not in text


def test_the_rule_by_which_replicas_restart_is_told() -> None:
    world = World(pytorch(run_policy=ruled("Ignore", 42))).running()
    world.exit("2", 42).settle()
    rule = "podFailurePolicy.rules[0] (exit code 42) ignores this failure"
    assert rule in explained(world)
    world.advance(10).settle().run().settle()
    assert f"(exit code 42) 10s ago; {rule}" in explained(world)


@pytest.mark.parametrize(
    ("action", "deed"),
    [
        ("Count", "counts this failure"),
        ("Restart", "would restart, but its restarts are used up"),
    ],
)
def test_a_rule_that_could_not_help_is_told_beside_the_policy(action: str, deed: str) -> None:
    run_policy = ruled(action, 42, backoffLimit=0)
    world = World(pytorch(policy="Never", run_policy=run_policy)).running()
    world.exit("2", 42).advance(5).settle()
    assert (
        f"podFailurePolicy.rules[0] (exit code 42) {deed}; restartPolicy is Never, "
        "runPolicy.backoffLimit is 0"
    ) in explained(world)
