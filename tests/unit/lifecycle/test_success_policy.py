"""`runPolicy.successPolicy: AllReplicas` (decision 116)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lifecycle.world import World, elastic, pytorch, torchrun

ALL = {"successPolicy": "AllReplicas"}


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", "Always"])
def test_the_job_succeeds_when_the_last_replica_has(policy: str) -> None:
    world = World(pytorch(workers=3, policy=policy, run_policy=ALL)).running()
    for replica in ("0", "2"):
        world.exit(replica, 0).settle().advance(60).settle()
        assert world.phase == "Running"
        assert world.condition("Completed")[0] == "False"  # type: ignore[index]
    assert world.aggregate == {"running": 1, "succeeded": 2}
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"
    assert (world.backoff, len(world.pods)) == (0, 3)


@pytest.mark.parametrize("run_policy", [{}, {"successPolicy": "Rank0"}])
def test_rank_0_decides_unless_told_otherwise(run_policy: dict[str, Any]) -> None:
    world = World(pytorch(workers=3, run_policy=run_policy)).running()
    world.exit("0", 0).settle()
    assert world.phase == "Succeeded"


def test_a_replica_that_fails_for_good_fails_the_job_after_rank_0_has_ended() -> None:
    world = World(pytorch(workers=3, policy="Never", run_policy=ALL)).running()
    world.exit("0", 0).settle().exit("2", 3).settle()
    assert world.phase == "Failed"
    assert "worker-2 failed with exit code 3" in world.condition("Failed")[2]  # type: ignore[index]


def test_a_failure_at_the_same_time_fails_the_job() -> None:
    world = World(pytorch(workers=2, policy="Never", run_policy=ALL)).running()
    world.exit("0", 0).exit("1", 3).settle()
    assert world.phase == "Failed"


def test_a_restart_starts_those_anew_that_had_succeeded() -> None:
    world = World(pytorch(workers=3, run_policy=ALL)).running()
    world.exit("0", 0).settle().exit("2", 3).settle().advance(10).settle()
    assert {world.attempt_of(r) for r in "012"} == {"2"}
    world.run().settle()
    assert world.aggregate == {"running": 3}
    world.exit("0", 0).exit("1", 0).exit("2", 0).settle()
    assert (world.phase, world.backoff) == ("Succeeded", 1)


@pytest.mark.parametrize(("run_policy", "kept"), [(ALL, {"2"}), ({}, {"1", "2"})])
def test_under_torchrun_nobody_joins_those_that_have_ended(
    run_policy: dict[str, Any], kept: set[str]
) -> None:
    world = World(torchrun(workers=3, run_policy=run_policy)).running()
    world.advance(600).exit("1", 0).settle().exit("2", 137).settle().advance(10).settle()
    assert {world.attempt_of(r) for r in "012"} == kept


def test_one_by_one_each_runs_until_it_has_succeeded() -> None:
    run_policy = {**ALL, "restartScope": "Replica"}
    world = World(pytorch(workers=2, run_policy=run_policy)).running()
    world.exit("0", 0).settle().exit("1", 3).settle().advance(10).settle().run().settle()
    assert (world.attempt_of("0"), world.attempt_of("1")) == ("1", "2")
    world.exit("1", 0).settle()
    assert (world.phase, world.backoff) == ("Succeeded", 1)


def test_a_success_is_kept_when_its_pod_goes() -> None:
    world = World(pytorch(workers=2, run_policy=ALL)).running()
    world.exit("0", 0).settle().remove("0").settle().advance(60).settle()
    assert world.aggregate == {"running": 1, "succeeded": 1}
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_after_a_pause_all_train_again() -> None:
    world = World(pytorch(workers=2, run_policy=ALL)).running()
    world.exit("0", 0).settle()
    for paused in (True, False):
        world.job["spec"]["runMode"] = {"pause": {"enabled": paused}}
        world.settle()
    world.run().settle()
    assert world.aggregate == {"running": 2}


def test_all_that_end_before_a_pause_is_seen_have_succeeded() -> None:
    world = World(pytorch(workers=2, run_policy=ALL)).running()
    world.exit("0", 0).exit("1", 0)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    assert world.phase == "Succeeded"


def test_the_deadline_counts_until_the_last_has_ended() -> None:
    world = World(pytorch(workers=2, run_policy={**ALL, "activeDeadlineSeconds": 60})).running()
    world.exit("0", 0).settle().advance(61).settle()
    assert world.condition("Failed")[1] == "DeadlineExceeded"  # type: ignore[index]


# Elastic jobs.


def test_an_elastic_job_runs_on_without_rank_0_that_has_ended() -> None:
    world = World(elastic(2, 3, 4, run_policy=ALL)).running()
    world.exit("0", 0).settle().exit("1", 0).settle()
    assert world.phase == "Running"
    world.exit("2", 0).settle()
    assert world.phase == "Succeeded"


def test_an_elastic_job_ends_without_what_it_has_lost_or_never_got() -> None:
    world = World(elastic(2, 4, 4, policy="Never", run_policy=ALL)).settle()
    world.run("0", "1", "2").settle().advance(600).settle()
    world.exit("2", 3).settle()
    assert (world.phase, world.aggregate) == (
        "Running",
        {"running": 2, "failed": 1, "creating": 1},
    )
    world.exit("0", 0).settle()
    assert world.phase == "Running"
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_an_elastic_job_waits_for_a_replica_that_starts() -> None:
    world = World(elastic(1, 2, 4, run_policy=ALL)).settle().run("0").settle()
    world.pods[world.name("1")]["spec"]["nodeName"] = "node"
    world.settle().exit("0", 0).settle()
    assert world.phase != "Succeeded"
    world.run("1").exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_an_elastic_job_needs_as_many_as_it_cannot_go_without() -> None:
    world = World(elastic(2, 3, 4, run_policy=ALL)).settle().run("0").settle()
    world.exit("0", 0).settle()
    assert world.phase != "Succeeded"


def test_an_elastic_job_needs_rank_0() -> None:
    world = World(elastic(1, 2, 4, run_policy=ALL)).settle().run("1").settle()
    world.exit("1", 0).settle()
    assert world.phase != "Succeeded"


@pytest.mark.parametrize("scope", ["Job", "Replica"])
def test_an_elastic_job_ends_without_one_that_failed_for_good(scope: str) -> None:
    job = elastic(1, 3, 3, policy="Never", run_policy={**ALL, "restartScope": scope})
    world = World(job).running().advance(700)
    world.exit("2", 5).settle().exit("0", 0).exit("1", 0).settle()
    assert (world.phase, world.aggregate) == ("Succeeded", {"succeeded": 2, "failed": 1})
