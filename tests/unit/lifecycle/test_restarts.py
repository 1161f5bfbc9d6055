"""Restarts: what costs, what does not, what is restarted, and when that is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, generic, pytorch, torchrun
from trainyard.schema.times import render


def test_one_incident_costs_one_and_restarts_all() -> None:
    world = World(pytorch()).running()
    world.exit("2", 137).exit("0", 1).exit("1", 1).exit("3", 1).settle()
    assert world.backoff == 1
    assert not world.pods, "all wait for the delay"
    world.advance(10).settle()
    assert {world.attempt_of(r) for r in "0123"} == {"2"}
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)


def test_peers_that_die_later_belong_to_the_incident() -> None:
    world = World(pytorch()).running()
    world.exit("2", 137).step()
    assert world.backoff == 1
    world.exit("0", 1).exit("1", 1)
    world.settle()
    assert world.backoff == 1


def test_failures_that_are_learned_of_late_belong_to_their_incident() -> None:
    """The controller was away for a while; its watch then told of one failure after the other."""
    world = World(torchrun(workers=3)).running()
    world.advance(5).exit("2", 137)
    second = render(world.advance(8).now)
    world.advance(5).settle()
    assert world.status is not None
    assert world.status["attempts"][0]["endTime"] == render(world.now - timedelta(seconds=13))
    world.exit("1", 1, finishedAt=second).settle()
    assert world.backoff == 1


def test_of_several_that_are_not_restarted_the_first_to_fail_is_the_cause() -> None:
    world = World(pytorch(policy="Never")).running()
    world.exit("2", 3).advance(20).exit("0", 1).exit("3", 1).settle()
    assert world.messages("ReplicaFailure") == [f"Pod[{world.name('2')}] exited with error code 3"]
    assert world.name("2") in world.condition("Failed")[2]  # type: ignore[index]


def test_a_clock_that_jumps_back_does_not_make_two_incidents_of_one() -> None:
    world = World(torchrun(workers=3)).running()
    world.advance(9).exit("2", 137).settle()
    world.advance(-5).exit("1", 1).settle()
    assert world.backoff == 1


def test_survivors_are_restarted_too_in_plain_mode() -> None:
    world = World(pytorch()).running()
    world.exit("3", 1).settle().advance(10).settle()
    assert {world.attempt_of(r) for r in "0123"} == {"2"}


def test_nobody_starts_before_all_old_pods_are_gone() -> None:
    world = World(pytorch()).running()
    world.exit("3", 1).step()
    world.advance(20)
    world.remove("3")
    world.step()
    assert sorted(world.pods) == [world.name(r) for r in "012"]
    world.settle()
    assert len(world.pods) == 4


def test_survivors_stay_under_torchrun() -> None:
    world = World(torchrun()).running()
    world.exit("3", 137).settle().advance(10).settle()
    assert [world.attempt_of(r) for r in "0123"] == ["1", "1", "1", "2"]
    world.exit("1", 1).settle().advance(10).settle()
    assert world.backoff == 1, "the survivor fails before all run again: same incident"
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)


def test_a_newcomer_that_fails_is_a_new_incident_and_restarts_all() -> None:
    world = World(torchrun()).running()
    world.exit("3", 137).settle().advance(10).settle().run().settle()
    world.advance(5).exit("3", 1).settle().advance(20).settle()
    assert world.backoff == 2
    assert {world.attempt_of(r) for r in "0123"} == {"3"}


def test_torchrun_without_restarts_of_its_own_starts_all_anew() -> None:
    world = World(pytorch(torchrunConfig={"enabled": True})).running()
    world.exit("3", 137).settle().advance(10).settle()
    assert {world.attempt_of(r) for r in "0123"} == {"2"}


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", "Always"])
@pytest.mark.parametrize("how", ["evicted", "deleted", "gone"])
def test_what_is_taken_away_comes_back_at_no_cost(policy: str, how: str) -> None:
    world = World(pytorch(policy=policy)).running()
    if how == "evicted":
        world.evict("1")
    elif how == "deleted":
        world.take(world.name("1"))
    else:
        world.remove("1")
    world.settle().settle()
    assert world.backoff == 0
    assert {world.attempt_of(r) for r in "0123"} == {"2"}
    world.run().settle()
    assert world.phase == "Running"
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]


def test_exit_zero_after_a_deletion_is_no_success() -> None:
    world = World(pytorch(workers=1)).running()
    world.take(world.name("0")).advance(1).exit("0", 0).settle().settle()
    assert world.phase == "Pending"
    assert world.attempt_of("0") == "2"


def test_a_failure_before_the_deletion_counts() -> None:
    world = World(pytorch(workers=1)).running()
    world.exit("0", 1).advance(5).take(world.name("0")).settle()
    assert world.backoff == 1


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        ("Never", 1, False),
        ("Never", 137, False),
        ("OnFailure", 1, True),
        ("OnFailure", 137, True),
        ("Always", 1, True),
        ("ExitCode", 1, False),
        ("ExitCode", 2, False),
        ("ExitCode", 139, False),
        ("ExitCode", 130, True),
        ("ExitCode", 137, True),
        ("ExitCode", 138, True),
        ("ExitCode", 143, True),
    ],
)
def test_policy_decides_which_codes_restart(policy: str, code: int, restarts: bool) -> None:
    world = World(pytorch(workers=1, policy=policy)).running()
    world.exit("0", code).settle()
    assert world.phase == ("Pending" if restarts else "Failed")
    assert world.backoff == (1 if restarts else 0)


def test_among_failures_close_together_a_restartable_code_is_the_cause() -> None:
    world = World(pytorch(policy="ExitCode")).running()
    world.exit("0", 1).advance(1).exit("2", 138).settle()
    assert (world.phase, world.backoff) == ("Pending", 1)
    assert world.status is not None
    assert world.status["attempts"][0]["replica"] == world.name("2")


def test_exit_code_waits_a_moment_for_the_cause() -> None:
    world = World(pytorch(policy="ExitCode")).running()
    plan = world.exit("0", 1).step()
    assert world.phase == "Running"
    assert plan.wake_at is not None
    assert (plan.wake_at - world.now).total_seconds() == 2
    world.advance(2).settle()
    assert world.phase == "Failed"


def test_the_budget_is_spent_exactly() -> None:
    world = World(pytorch(workers=2, run_policy={"backoffLimit": 2})).running()
    for spent in (1, 2):
        world.exit("1", 3).settle()
        assert world.backoff == spent
        world.advance(400).settle().run().settle()
    world.exit("1", 3, message="one\ntwo\nlast words").settle()
    assert (world.phase, world.backoff) == ("Failed", 2)
    status, reason, message = world.condition("Failed")  # type: ignore[misc]
    assert (status, reason) == ("True", "BackoffLimitExceeded")
    assert (
        message == f"PyTorchTrainingJob train has failed: {world.name('1')} failed with exit code 3"
    )
    assert "last words" in world.condition("ReplicaFailure")[2]  # type: ignore[index]


def test_restart_scope_replica_restarts_only_what_failed() -> None:
    world = World(pytorch(run_policy={"restartScope": "Replica"})).running()
    world.exit("2", 1).settle().advance(10).settle()
    assert [world.attempt_of(r) for r in "0123"] == ["1", "1", "2", "1"]
    assert world.backoff == 1


def test_delays_double_up_to_the_limit_and_start_anew_after_health() -> None:
    world = World(pytorch(workers=1, run_policy={"backoffLimit": 99})).running()
    delays = []
    for _ in range(8):
        plan = world.exit("0").step()
        assert plan.wake_at is None or plan.wake_at > world.now
        world.settle()
        delays.append((world.last.wake_at - world.now).total_seconds())  # type: ignore[operator]
        world.advance(delays[-1]).settle().run().settle()
    assert delays == [10, 20, 40, 80, 160, 320, 360, 360]
    world.advance(600).exit("0").settle()
    assert (world.last.wake_at - world.now).total_seconds() == 10  # type: ignore[operator]


def test_always_runs_others_again_after_success_and_spends_the_budget() -> None:
    types = [
        {
            "type": t,
            "restartPolicy": "Always",
            "template": {"spec": {"containers": [{"name": "m"}]}},
        }
        for t in ("master", "worker")
    ]
    world = World(pytorch(types=types, run_policy={"backoffLimit": 1})).running()
    world.exit("worker-0", 0).settle().advance(10).settle()
    assert [world.attempt_of(r) for r in ("master-0", "worker-0")] == ["1", "2"]
    assert world.backoff == 1
    world.run().settle().exit("worker-0", 0).settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 1, "succeeded": 1})
    world.exit("master-0", 0).settle()
    assert world.phase == "Succeeded"


def test_generic_replicas_restart_one_by_one_within_their_own_limit() -> None:
    world = World(generic(workers=2, limit=1)).running()
    world.exit("0").settle().advance(10).settle().run().settle()
    world.exit("1").settle().advance(10).settle().run().settle()
    assert [world.attempt_of(r) for r in "01"] == ["2", "2"]
    assert world.status is not None
    assert world.status["tasks"][0]["restartCount"] == 2
    assert world.status["restartCount"] == 2
    assert "backoffCount" not in world.status
    world.exit("0").settle()
    assert world.phase == "Failed"


def test_a_crash_between_write_and_deletion_loses_and_doubles_nothing() -> None:
    world = World(pytorch(workers=2)).running()
    world.exit("1")
    plan = world.look()
    world.status = plan.status
    for _ in range(3):
        world.status = world.look().status or world.status
    assert world.backoff == 1
    world.settle().advance(10).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)


def test_attempts_tell_how_each_ended_and_only_the_last_ten_are_kept() -> None:
    world = World(pytorch(workers=1, run_policy={"backoffLimit": 99})).running()
    for _ in range(12):
        world.exit("0", 137, reason="OOMKilled").settle().advance(400).settle().run().settle()
    assert world.status is not None
    attempts = world.status["attempts"]
    assert [a["number"] for a in attempts] == list(range(4, 14))
    known = {"number", "startTime", "endTime", "replica", "exitCode", "reason"}
    assert attempts[0].keys() == known | {"cause", "repeated"}
    assert (attempts[0]["exitCode"], attempts[0]["reason"]) == (137, "OOMKilled")
    assert "endTime" not in attempts[-1]


def test_generic_attempts_are_told_per_replica() -> None:
    world = World(generic(workers=2, limit=2)).running()
    for code in (5, 6):
        world.exit("1", code).settle().advance(20).settle().run().settle()
    world.exit("0", 7).settle()
    assert _told(world) == [(1, "1", 5), (2, "1", 6), (1, "0", 7), (3, None, None)]
    world.advance(20).settle().run().settle().exit("1", 8).settle()
    assert world.phase == "Failed"
    assert _told(world)[-2:] == [(1, "0", 7), (3, "1", 8)]


def test_the_last_attempt_is_that_of_the_replica_that_ended_the_job() -> None:
    world = World(generic(workers=2, limit=1)).running()
    world.exit("1", 5).settle().advance(10).settle().run().settle()
    world.exit("0", 6).settle().advance(10).settle().run().settle().exit("0", 7).settle()
    assert _told(world) == [(1, "1", 5), (1, "0", 6), (2, "0", 7)]


def _told(world: World) -> list[tuple[int, str | None, int | None]]:
    assert world.status is not None
    names = {world.name(r): r for r in "01"}
    return [
        (attempt["number"], names.get(attempt.get("replica")), attempt.get("exitCode"))
        for attempt in world.status["attempts"]
    ]


def test_a_budget_that_status_does_not_tell_is_kept_all_the_same() -> None:
    """A ColossalAIJob has no backoffCount."""
    world = World(pytorch(workers=2, run_policy={"backoffLimit": 1})).running()
    world.exit("1").settle()
    assert world.status is not None
    del world.status["backoffCount"]
    world.advance(10).settle().run().settle().exit("1").settle()
    assert world.phase == "Failed"


@pytest.mark.parametrize("scope", ["Job", "Replica"])
def test_always_spends_nothing_on_replicas_that_complete_just_before_rank_0(scope: str) -> None:
    run_policy = {"restartScope": scope}
    world = World(pytorch(workers=3, policy="Always", run_policy=run_policy)).running()
    world.exit("1", 0).exit("2", 0).settle().advance(9.9).exit("0", 0).settle()
    assert (world.phase, world.backoff) == ("Succeeded", 0)


@pytest.mark.parametrize(
    ("policy", "code", "reason"),
    [
        ("ExitCode", 137, "BackoffLimitExceeded"),
        ("ExitCode", 1, "Failed"),
        ("OnFailure", 1, "BackoffLimitExceeded"),
    ],
)
def test_the_reason_tells_whether_the_budget_was_the_obstacle(
    policy: str, code: int, reason: str
) -> None:
    world = World(pytorch(workers=1, policy=policy, run_policy={"backoffLimit": 1})).running()
    world.exit("0", 137).settle().advance(10).settle().run().settle()
    world.exit("0", code).settle()
    assert world.condition("Failed")[1] == reason  # type: ignore[index]


def test_a_replica_that_ran_well_for_long_starts_its_delays_anew() -> None:
    world = World(generic(workers=2, limit=9)).running()
    delays = []
    for healthy in (0, 0, 600, 599):
        world.advance(healthy).exit("1").settle()
        assert world.last.wake_at is not None
        delays.append((world.last.wake_at - world.now).total_seconds())
        world.advance(delays[-1]).settle().run().settle()
    assert delays == [10, 20, 10, 20]


def test_newcomers_that_never_came_up_are_in_vain_too() -> None:
    world = World(torchrun(workers=3)).running()
    world.exit("2", 137).settle().advance(10).settle().run("2")
    world.pods[world.name("1")]["status"]["phase"] = "Unknown"
    world.settle().exit("2", 1).settle()
    assert world.backoff == 2
    assert world.status is not None
    assert world.status["internal"]["floor"] == 3, "all start anew"


@pytest.mark.parametrize(
    "job", [generic(workers=2), pytorch(workers=2, run_policy={"restartScope": "Replica"})]
)
def test_a_single_replica_that_is_taken_away_comes_back_at_no_cost(job: dict[str, Any]) -> None:
    world = World(job).running()
    world.evict("1").settle()
    assert [world.attempt_of(r) for r in "01"] == ["1", "2"], "at once"
    world.run().settle().remove("1").settle()
    assert world.last.wake_at is not None
    assert (world.last.wake_at - world.now).total_seconds() == 20, "not for ever at once"
    assert world.status is not None
    assert world.status["tasks"][0]["restartCount"] == 0
    assert world.status.get("backoffCount", 0) == 0


def test_the_earliest_end_is_the_cause() -> None:
    world = World(pytorch(workers=3)).running()
    world.advance(2).exit("1", 3).advance(1).exit("2", 4).advance(1).exit("0", 5).settle()
    assert world.status is not None
    assert world.status["attempts"][0]["replica"] == world.name("1")
    assert world.status["attempts"][0]["exitCode"] == 3


@pytest.mark.parametrize(("apart", "phase"), [(2, "Pending"), (2.5, "Failed")])
def test_only_failures_close_together_have_one_cause(apart: float, phase: str) -> None:
    world = World(pytorch(workers=2, policy="ExitCode")).running()
    world.exit("0", 1).advance(apart).exit("1", 137).settle()
    assert world.phase == phase


def test_only_replicas_that_had_a_pod_count_as_restarted() -> None:
    world = World(pytorch(workers=3)).settle().run("0", "2").settle()
    world.exit("2", 0).settle().remove("2").exit("0", 1).settle()
    assert world.status is not None
    assert world.status["tasks"][0]["restartCount"] == 3, "2 had one before"
    fresh = World(pytorch(workers=3))
    fresh.step()
    fresh.remove("2")
    fresh.run("0").exit("0", 1).settle()
    assert fresh.status is not None
    assert fresh.status["tasks"][0]["restartCount"] == 2


def test_a_replica_that_cannot_be_reached_when_its_peers_fail_is_the_cause() -> None:
    world = World(pytorch(workers=3)).running()
    world.pods[world.name("1")]["status"]["phase"] = "Unknown"
    world.settle().exit("2", 1).settle()
    assert world.status is not None
    first = world.status["attempts"][0]
    assert (first["replica"], first["reason"]) == (world.name("1"), "NodeLost")
    assert world.backoff == 0


@pytest.mark.parametrize(("seconds", "floor"), [(89, 3), (90, 1)])
def test_newcomers_that_fail_soon_after_they_came_up_are_in_vain(seconds: int, floor: int) -> None:
    world = World(torchrun(workers=3)).running()
    world.exit("2", 137).settle().advance(10).settle().run("2").settle()
    world.advance(seconds).exit("2", 1).settle()
    assert world.status is not None
    assert world.status["internal"]["floor"] == floor


def test_what_is_left_of_a_shared_budget_goes_to_the_replica_that_ended_first() -> None:
    policy = {"restartScope": "Replica", "backoffLimit": 1}
    world = World(pytorch(workers=3, run_policy=policy)).running()
    world.advance(1).exit("2", 1).advance(1).exit("1", 1).settle()
    assert world.name("1") in world.condition("Failed")[2]  # type: ignore[index]
