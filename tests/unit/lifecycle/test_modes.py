"""Pause, resume, debug; an elastic job that changes its size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, elastic, generic, pytorch, torchrun
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.workload import Manifest, ReplicaKey, Workload

PAUSED = {"pause": {"enabled": True}}
SCHEDULED = {"scheduler": {"t9kScheduler": {"queue": "q"}}}


def set_paused(world: World, paused: bool = True) -> World:
    world.job["spec"]["runMode"] = PAUSED if paused else {}
    return world


def kinds(world: World) -> list[str]:
    return sorted(obj["kind"] for obj in world.owned.values())


def resize(world: World, expected: int) -> World:
    world.job["spec"]["elastic"]["expectedReplicas"] = expected
    return world


@pytest.mark.parametrize(
    ("job", "beside"), [(pytorch(runMode=PAUSED), ["Service"]), (generic(runMode=PAUSED), [])]
)
def test_paused_at_creation_has_no_pods(job: dict[str, Any], beside: list[str]) -> None:
    world = World(job).settle()
    assert (world.phase, world.pods) == ("Paused", {})
    assert kinds(world) == beside
    assert world.condition("Paused")[0] == "True"  # type: ignore[index]
    set_paused(world, False).settle()
    assert world.phase == "Resuming"
    world.run().settle()
    assert world.phase == "Running"
    assert world.condition("Paused")[0] == "False"  # type: ignore[index]


@pytest.mark.parametrize("job", [pytorch(), torchrun(), generic()])
def test_pause_deletes_pods_gracefully_and_resume_brings_them_back(job: dict[str, Any]) -> None:
    world = World(job).running()
    plan = set_paused(world).step()
    assert world.phase == "Paused"
    assert {getattr(a, "grace_seconds", 0) for a in plan.actions} == {None}
    world.settle()
    replicas = world.workload.replicas
    assert (world.pods, world.aggregate) == ({}, {"deleted": replicas})
    set_paused(world, False).settle()
    assert (world.phase, world.aggregate) == ("Resuming", {"creating": replicas})
    world.run().settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": replicas})
    assert world.messages("Paused")
    assert world.messages("Resumed")


def test_pause_and_resume_cost_nothing() -> None:
    world = World(pytorch()).running()
    for _ in range(3):
        set_paused(world).settle()
        set_paused(world, False).settle().run().settle()
    assert world.backoff == 0
    assert world.status is not None
    assert [a.get("reason") for a in world.status["attempts"]] == ["Paused"] * 3 + [None]


def test_what_dies_of_the_pause_is_no_failure() -> None:
    world = World(pytorch(policy="Never")).running()
    set_paused(world).step()
    for replica in "0123":
        world.advance(1).exit(replica, 143).step()
    assert world.phase == "Paused"
    set_paused(world, False).step()
    world.settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)


def test_exit_0_in_answer_to_the_pause_is_no_success() -> None:
    world = World(pytorch(workers=1)).running()
    set_paused(world).step()
    world.advance(2).exit("0", 0).step()
    assert world.phase == "Paused"
    set_paused(world, False).settle().settle()
    assert world.attempt_of("0") == "2"


def test_success_before_the_pause_is_success() -> None:
    world = World(pytorch(workers=1)).running()
    set_paused(world.exit("0", 0)).settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(("limit", "phase"), [(1, "Paused"), (0, "Succeeded")])
def test_before_the_pause_too_exit_0_under_always_counts_without_budget_only(
    limit: int, phase: str
) -> None:
    world = World(generic(workers=1, policy="Always", limit=limit)).running()
    set_paused(world.exit("0", 0)).settle()
    assert world.phase == phase


def test_attempts_go_on_after_a_pause_where_replicas_restart_one_by_one() -> None:
    world = World(generic(workers=2, limit=3)).running()
    set_paused(world.advance(5)).settle()
    set_paused(world.advance(5), False).settle().run().settle()
    world.advance(5).exit("0", 3).settle().advance(10).settle().run().settle()
    world.exit("0", 0).exit("1", 0).settle()
    assert world.status is not None
    attempts = [(a["number"], a["startTime"][-3:-1], a["reason"]) for a in world.status["attempts"]]
    assert attempts == [(1, "00", "Paused"), (2, "10", "Error"), (3, "25", "Succeeded")]


def test_an_attempt_that_never_started_began_when_it_ended() -> None:
    world = World(pytorch(workers=1)).running()
    set_paused(world.exit("0").settle().advance(4)).settle()
    assert world.status is not None
    waited = world.status["attempts"][-1]
    assert (waited["reason"], waited["startTime"]) == ("Paused", waited["endTime"])


def test_resume_before_the_old_pods_are_gone_waits_for_them() -> None:
    world = World(pytorch()).running()
    set_paused(world).step()
    set_paused(world, False)
    world.step()
    world.step()
    assert len(world.pods) == 4
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    world.settle()
    assert {world.attempt_of(r) for r in "0123"} == {"2"}


def test_resume_specs_hold_from_the_first_resume_on() -> None:
    def mode(paused: bool) -> dict[str, Any]:
        specs = [{"type": "worker", "args": ["resumed.py"]}]
        return {"pause": {"enabled": paused, "resumeSpecs": specs}}

    def args(world: World) -> list[str]:
        found: list[str] = world.pods[world.name("0")]["spec"]["containers"][0]["args"]
        return found

    world = World(pytorch(workers=1, runMode=mode(False))).running()
    assert args(world) == ["train.py"]
    world.job["spec"]["runMode"] = mode(True)
    world.settle()
    world.job["spec"]["runMode"] = mode(False)
    world.settle().run().settle()
    assert args(world) == ["resumed.py"]
    world.exit("0", 1).settle().advance(10).settle()
    assert args(world) == ["resumed.py"], "after a restart too"


def test_the_pod_group_goes_on_pause_only() -> None:
    world = World(pytorch(**SCHEDULED)).running()
    assert kinds(world) == ["PodGroup", "Service"]
    world.exit("1", 1).settle().advance(10).settle().run().settle()
    assert kinds(world) == ["PodGroup", "Service"]
    set_paused(world).settle()
    assert kinds(world) == ["Service"]
    set_paused(world, False).settle()
    assert kinds(world) == ["PodGroup", "Service"]


def test_generic_replicas_that_have_ended_are_not_run_again() -> None:
    world = World(generic()).running()
    world.exit("0", 0).settle()
    set_paused(world).settle()
    assert world.aggregate == {"succeeded": 1, "deleted": 1}
    set_paused(world, False).settle().run().settle()
    assert sorted(world.pods) == [world.name("1")]
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_pause_wins_over_debug() -> None:
    mode = {"debug": {"enabled": True}, "pause": {"enabled": True}}
    world = World(pytorch(runMode=mode)).settle()
    assert (world.phase, world.pods) == ("Paused", {})


def test_debug_runs_as_an_ordinary_job() -> None:
    world = World(pytorch(runMode={"debug": {"enabled": True}})).running()
    command = world.pods[world.name("0")]["spec"]["containers"][0]["command"]
    assert command == ["sleep", "inf"]


def test_generic_replicas_that_run_again_after_a_pause_have_a_new_attempt() -> None:
    world = World(generic()).running()
    world.exit("0", 0).settle()
    set_paused(world).settle()
    set_paused(world, False).settle()
    assert world.attempt_of("1") == "2"


def test_a_pause_is_a_new_beginning_for_delays() -> None:
    world = World(pytorch(workers=1)).running()
    world.exit("0").settle().advance(10).settle().run().settle()
    set_paused(world).settle()
    set_paused(world, False).settle().run().settle()
    world.exit("0").settle()
    assert world.last.wake_at is not None
    assert (world.last.wake_at - world.now).total_seconds() == 10
    assert world.backoff == 2


def test_a_pause_does_not_give_the_budget_back() -> None:
    world = World(generic(workers=1, limit=1)).running()
    world.exit("0").settle().advance(10).settle().run().settle()
    set_paused(world).settle()
    set_paused(world, False).settle().run().settle()
    world.exit("0").settle()
    assert world.phase == "Failed"


# Elastic.


def test_growing_keeps_pods_and_costs_nothing() -> None:
    world = World(elastic(1, 2, 4)).running()
    resize(world, 4).settle()
    assert [world.attempt_of(r) for r in "0123"] == ["1", "1", "2", "2"]
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    new = ", ".join(f"{world.name(replica)} (attempt 2)" for replica in "23")
    assert world.messages("NewReplica") == [
        "Create 2 replicas for the first time.",
        f"Create 2 replicas: {new}.",
    ]
    assert world.messages("Scaled") == ["The job changes its size from 2 to 4 replicas."]


def test_shrinking_removes_the_highest_ranks() -> None:
    world = World(elastic(1, 4, 4)).running()
    resize(world, 1).settle()
    assert sorted(world.pods) == [world.name("0")]
    assert (world.phase, world.aggregate, world.backoff) == ("Running", {"running": 1}, 0)


@pytest.mark.parametrize("replica", ["0", "1"])
def test_failures_of_survivors_during_a_resize_cost_nothing(replica: str) -> None:
    world = World(elastic(1, 2, 3)).running()
    resize(world, 3).settle().run(replica)
    world.exit(replica, 1).settle()
    assert world.backoff == 0
    world.advance(400).settle().run().settle()
    assert world.phase == "Running"
    world.advance(120).exit(replica, 1).settle()
    assert world.backoff == 1, "the resize is over"


def test_a_survivor_that_fails_shortly_after_shrinking_costs_nothing() -> None:
    world = World(elastic(1, 3, 3)).running()
    resize(world, 2).settle().advance(5)
    world.exit("0", 1).settle()
    assert world.backoff == 0
    world.run().settle().advance(120).exit("1", 1).settle()
    assert world.backoff == 1


def test_an_incident_long_after_a_resize_is_one_until_its_replica_is_back() -> None:
    world = World(elastic(1, 3, 4)).running()
    resize(world, 4).settle().run().settle().advance(120).settle()
    world.exit("3", 137).settle()
    assert world.condition("ReplicaFailure")[0] == "True"  # type: ignore[index]
    world.advance(1).exit("1", 1).settle().advance(20).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]


def test_a_failure_is_told_until_its_replica_is_back_where_each_restarts_alone() -> None:
    world = World(elastic(1, 3, 3, run_policy={"restartScope": "Replica"})).running()
    world.exit("2", 1).settle()
    assert world.phase == "Running"
    assert world.condition("ReplicaFailure")[0] == "True"  # type: ignore[index]
    world.advance(10).settle().run().settle()
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]


@pytest.mark.parametrize("size", [1, 4])
def test_a_size_that_changes_after_the_end_changes_nothing_that_is_told(size: int) -> None:
    world = World(elastic(1, 3, 4)).running()
    world.exit("0", 0).settle()
    before = world.status
    assert before is not None
    resize(world, size).settle()
    assert world.status is not None
    for name in ("tasks", "aggregate", "replicas"):
        assert world.status[name] == before[name]


def test_an_elastic_job_runs_with_what_fits() -> None:
    world = World(elastic(2, 4, 4)).settle().run("0", "1").settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 2, "creating": 2})


def test_an_elastic_job_that_never_gets_its_whole_size_settles() -> None:
    """From then on a failure starts the delays anew after a long healthy run."""
    world = World(elastic(2, 4, 4)).settle().run("0", "1").settle()
    world.advance(90).settle()
    assert world.last.wake_at is None
    world.exit("1").settle().advance(10).settle().run("0", "1").settle().advance(90).settle()
    world.advance(600).exit("1").settle()
    assert world.last.wake_at is not None
    assert (world.last.wake_at - world.now).total_seconds() == 10


@pytest.mark.parametrize("running", ["0", "123"])
def test_below_the_minimum_or_without_rank_0_it_waits(running: str) -> None:
    world = World(elastic(2, 4, 4)).settle().run(*running).settle()
    assert world.phase == "Pending"


def test_a_replica_that_comes_back_after_shrinking_and_growing_is_new() -> None:
    world = World(elastic(1, 3, 3)).running()
    resize(world, 1).settle()
    resize(world, 3).settle().run().settle()
    assert [world.attempt_of(r) for r in "012"] == ["1", "3", "3"]
    assert (world.phase, world.backoff) == ("Running", 0)


def test_a_size_that_changed_during_the_pause_is_taken_up() -> None:
    world = World(elastic(1, 3, 3)).running()
    set_paused(world).settle()
    resize(world, 2)
    set_paused(world, False).settle().run().settle()
    assert (len(world.pods), world.phase) == (2, "Running")
    assert not world.messages("Scaled"), "resuming took care of it"


def test_scale_fields_are_told() -> None:
    world = World(elastic(1, 3, 3)).running()
    assert world.status is not None
    assert world.status["replicas"] == 3
    assert world.status["selector"] == f"trainyard.dev/job-uid={world.workload.uid}"
    resize(world, 1).step()
    world.step()
    assert world.status["replicas"] == 3, "two of them on their way out"
    world.settle()
    assert world.status["replicas"] == 1


class Revised(World):
    """An elastic job whose rank 0 is built from the size, as DeepSpeed's hostfile is."""

    @property
    def workload(self) -> Workload:
        base = super().workload
        size = str(base.replicas)

        def revision(key: ReplicaKey) -> str:
            return size if key.ordinal == 0 else ""

        def build(
            key: ReplicaKey, attempt: int, *, pod_group: str, resumed: bool, joins: bool = False
        ) -> Manifest:
            pod = base.build_pod(key, attempt, pod_group=pod_group, resumed=resumed, joins=joins)
            pod["metadata"]["annotations"][labels.REVISION] = revision(key)
            return pod

        return replace(base, revision=revision, build_pod=build)


def test_a_pod_built_from_what_has_changed_is_replaced_at_no_cost() -> None:
    world = Revised(elastic(1, 2, 3)).running()
    resize(world, 3).settle().run().settle()
    assert [world.attempt_of(r) for r in "012"] == ["2", "1", "2"]
    assert (world.phase, world.backoff) == ("Running", 0)


def test_a_replica_that_has_ended_is_not_replaced() -> None:
    world = Revised(elastic(1, 3, 3, policy="Never")).running()
    world.exit("2", 1).settle()
    world.pods[world.name("2")]["metadata"]["annotations"][labels.REVISION] = "old"
    world.settle()
    assert world.attempt_of("2") == "1"


def test_a_lost_replica_comes_back_after_a_pause_and_not_before() -> None:
    world = World(elastic(1, 4, 4, policy="ExitCode")).running()
    world.exit("3", 1).settle().advance(10).settle()
    for _ in range(2):
        world.exit("2", 137).settle().advance(60).settle().run().settle()
    assert [world.attempt_of(r) for r in "0123"] == ["1", "1", "3", "1"]
    assert world.aggregate == {"running": 3, "failed": 1}
    set_paused(set_paused(world).settle(), False).settle().run().settle()
    assert world.aggregate == {"running": 4}


def test_a_lost_replica_that_came_back_after_a_pause_is_one_like_others() -> None:
    world = World(elastic(1, 3, 3, policy="ExitCode")).running()
    world.exit("2", 1).settle().advance(10).settle()
    set_paused(set_paused(world).settle(), False).settle().run().settle()
    assert world.attempt_of("2") == "2"
    world.exit("2", 137).settle().advance(60).settle().run().settle()
    assert (world.attempt_of("2"), world.backoff) == ("3", 1)
    assert world.aggregate == {"running": 3}


def test_beside_a_lost_replica_one_that_may_restart_does() -> None:
    """Both ended while the controller was away, so far apart that the first is the cause."""
    world = World(elastic(1, 3, 3, policy="ExitCode")).running()
    world.advance(120).settle().exit("2", 1).advance(20).exit("1", 137).settle()
    assert world.messages("ReplicaFailure") == [f"Pod[{world.name('2')}] exited with error code 1"]
    world.advance(10).settle().run().settle()
    assert [world.attempt_of(r) for r in "012"] == ["1", "2", "1"]
    assert (world.phase, world.backoff) == ("Running", 1)
    assert world.aggregate == {"running": 2, "failed": 1}


def test_an_eviction_that_met_a_pause_costs_nothing() -> None:
    world = World(generic(workers=2, limit=1)).running()
    world.evict("1")
    set_paused(world).settle()
    set_paused(world, False).settle().run().settle()
    assert world.status is not None
    assert (world.phase, world.status["restartCount"]) == ("Running", 0)


def test_a_failure_whose_replica_is_not_back_is_told_through_a_pause() -> None:
    world = World(pytorch(workers=2)).running().exit("1", 3).settle()
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    failed = f"Pod[{world.name('1')}] exited with error code 3"
    assert world.phase == "Paused"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", failed)


def test_replicas_that_the_cluster_ended_before_a_pause_come_back_after_it() -> None:
    """Those that ended by themselves do not, in a job whose replicas restart one by one."""
    world = World(generic(workers=4, policy="Never")).running()
    world.exit("1", 0)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    assert world.phase == "Paused"
    world.job["spec"]["runMode"] = {"pause": {"enabled": False}}
    world.settle().run().settle()
    assert world.aggregate == {"running": 3, "succeeded": 1}


def test_what_is_evicted_as_a_pause_begins_comes_back_after_it() -> None:
    world = World(generic(workers=3, policy="Never")).running()
    world.evict("1").exit("2", 0)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    world.job["spec"]["runMode"] = {"pause": {"enabled": False}}
    world.settle().run().settle()
    assert world.aggregate == {"running": 2, "succeeded": 1}
