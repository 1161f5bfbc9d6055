"""What holds for every kind, and what differs: who decides, what a budget covers, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.lifecycle.world import (
    World,
    colossalai,
    deepspeed,
    generic,
    pytorch,
    template,
    torchrun,
)

Make = Callable[..., dict[str, Any]]
TRAINING: tuple[Make, ...] = (pytorch, torchrun, deepspeed)
ALL: tuple[Make, ...] = (*TRAINING, colossalai, generic)
RESTARTABLE = (130, 137, 138, 143)


def set_paused(world: World, paused: bool) -> World:
    """As a user does: the generation rises with every change of the spec."""
    world.job["spec"]["runMode"] = {"pause": {"enabled": paused}}
    world.job["metadata"]["generation"] += 1
    return world


def replicas(world: World) -> list[str]:
    return sorted(name.removeprefix(f"{world.workload.base}-") for name in world.pods)


def restart_count(world: World) -> int:
    assert world.status is not None
    return int(world.status["restartCount"])


# Codes and budgets.


@pytest.mark.parametrize("make", TRAINING)
@pytest.mark.parametrize("code", [*RESTARTABLE, 1, 2, 126, 127, 128, 129, 131, 136, 139, 142, 255])
def test_exit_code_restarts_four_codes_however_the_job_is_launched(make: Make, code: int) -> None:
    world = World(make(workers=1, policy="ExitCode")).running()
    world.exit("0", code).settle()
    expected = ("Pending", 1) if code in RESTARTABLE else ("Failed", 0)
    assert (world.phase, world.backoff) == expected


@pytest.mark.parametrize("make", TRAINING)
@pytest.mark.parametrize(("limit", "reason"), [(0, "Failed"), (1, "BackoffLimitExceeded")])
def test_the_smallest_budgets_are_spent_by_failures_alone(
    make: Make, limit: int, reason: str
) -> None:
    world = World(make(workers=2, run_policy={"backoffLimit": limit})).running()
    for _ in range(limit):
        world.exit("1", 1).settle().advance(10).settle().run().settle()
    world.advance(3600).evict("1").settle().advance(100).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", limit)
    world.advance(3600).exit("1", 1).settle()
    assert (world.phase, world.backoff) == ("Failed", limit)
    assert world.condition("Failed")[1] == reason  # type: ignore[index]


# DeepSpeedJob.


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_workers_of_a_deepspeed_job_may_end_before_its_launch(policy: str) -> None:
    world = World(deepspeed(policy=policy)).running()
    world.exit("2", 0).settle().advance(1000).settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert world.aggregate == {"running": 2, "succeeded": 1}
    world.exit("0", 0).settle()
    assert world.phase == "Succeeded"


def test_a_deepspeed_job_starts_again_as_a_whole_and_fails_as_documented() -> None:
    world = World(deepspeed(run_policy={"backoffLimit": 1})).running()
    world.exit("1", 0).exit("2", 0).exit("0", 9).settle().advance(10).settle().run().settle()
    assert {world.attempt_of(r) for r in "012"} == {"2"}
    world.exit("0", 9, message="boom").settle()
    name = world.name("0")
    text = f"DeepSpeedJob train has failed: {name} failed with exit code 9"
    assert world.condition("Failed") == ("True", "BackoffLimitExceeded", text)
    text = f"Pod[{name}] exited with error code 9: boom"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", text)


# ColossalAIJob.


@pytest.mark.parametrize(
    ("policy", "limit", "relaunches"),
    [("OnFailure", 2, 2), ("OnFailure", 0, 0), ("Never", 5, 0), ("Always", 1, 1)],
)
def test_a_colossalai_job_is_relaunched_as_a_whole_within_its_limit(
    policy: str, limit: int, relaunches: int
) -> None:
    world = World(colossalai(policy=policy, limit=limit)).running()
    assert replicas(world) == ["launcher", "worker-0", "worker-1"]
    for done in range(relaunches):
        world.exit("launcher" if done % 2 else "worker-1", 1).settle()
        assert world.phase == "Pending"
        world.advance(400).settle().run().settle()
        assert restart_count(world) == done + 1
    world.exit("launcher", 3).settle()
    assert world.phase == "Failed"
    assert world.status is not None
    assert "backoffCount" not in world.status


def test_the_launcher_decides_under_any_policy() -> None:
    world = World(colossalai(policy="Always", limit=3)).running()
    world.exit("worker-0", 0).settle().exit("launcher", 0).settle()
    assert (world.phase, restart_count(world)) == ("Succeeded", 0)
    text = "The job has finished successfully"
    assert world.condition("Completed") == ("True", "Succeeded", f"{text}.")
    assert world.condition("ReplicaFailure") == ("False", "Finished", text)


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    ("cleans", "left"), [(True, ["launcher"]), (False, ["launcher", "worker-0", "worker-1"])]
)
def test_clean_up_of_workers_keeps_the_launcher(code: int, cleans: bool, left: list[str]) -> None:
    world = World(colossalai(policy="Never", runPolicy={"cleanUpWorkers": cleans})).running()
    world.exit("launcher", code).settle()
    assert replicas(world) == left
    stopped = [pod for pod in world.pods.values() if "activeDeadlineSeconds" in pod["spec"]]
    assert len(stopped) == (2 if code and not cleans else 0), "after a failure nothing goes on"


# Pause, for all kinds, at every moment.


@pytest.mark.parametrize("make", ALL)
def test_a_pause_while_pending_is_told_and_costs_nothing(make: Make) -> None:
    world = World(make()).settle()
    set_paused(world, True).settle()
    wanted = world.workload.replicas
    assert (world.phase, world.pods, world.aggregate) == ("Paused", {}, {"deleted": wanted})
    set_paused(world, False).settle().run().settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": wanted})
    assert world.status is not None
    assert world.status["observedGeneration"] == 3
    assert world.status.get("backoffCount", world.status.get("restartCount")) == 0


def test_a_pause_during_the_delay_of_a_restart_ends_the_delay() -> None:
    world = World(pytorch(workers=2)).running()
    set_paused(world.exit("1").settle(), True).settle()
    assert (world.phase, world.backoff, world.aggregate) == ("Paused", 1, {"deleted": 2})
    set_paused(world, False).settle()
    assert {world.attempt_of(r) for r in "01"} == {"3"}


def test_a_pause_while_pods_of_a_restart_terminate_counts_once() -> None:
    world = World(pytorch(workers=2)).running()
    world.exit("1").step()
    set_paused(world, True).step()
    assert (world.phase, len(world.pods)) == ("Paused", 2)
    set_paused(world.settle(), False).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)


def test_a_pause_that_nobody_saw_changes_nothing() -> None:
    world = World(pytorch()).running()
    set_paused(world, True)
    plan = set_paused(world, False).step()
    assert (plan.actions, plan.events, world.phase) == ((), (), "Running")


def test_a_job_that_has_failed_cannot_be_paused() -> None:
    world = World(pytorch(policy="Never")).running()
    set_paused(world.exit("0", 1).settle(), True).settle()
    assert (world.phase, world.condition("Paused")) == ("Failed", None)
    assert world.status is not None
    assert world.status["observedGeneration"] == 2


def test_a_paused_job_has_no_deadline() -> None:
    world = World(pytorch(run_policy={"activeDeadlineSeconds": 60})).running()
    set_paused(world.advance(61), True).settle()
    world.advance(10_000).settle()
    assert (world.phase, world.last.wake_at) == ("Paused", None)


# What status tells.


def test_a_type_without_replicas_is_told_and_counts_nothing() -> None:
    types = [
        {"type": name, "replicas": count, "template": template()}
        for name, count in (("worker", 2), ("ps", 0))
    ]
    world = World(pytorch(types=types)).running()
    assert world.status is not None
    assert world.status["tasks"][1] == {"type": "ps", "restartCount": 0, "replicas": []}
    world.exit("0", 0).settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "\n".join(f"line {n}" for n in range(20)) + "\n\n",
            "line 15\nline 16\nline 17\nline 18\nline 19",
        ),
        ("x" * 5000, "x" * 800),
        (" \n ", ""),
    ],
    ids=["five lines", "800 characters", "nothing"],
)
def test_the_last_words_of_a_replica_are_told(message: str, told: str) -> None:
    world = World(pytorch(workers=1, policy="Never")).running()
    world.exit("0", 1, message=message).settle()
    text = f"Pod[{world.name('0')}] exited with error code 1" + (f": {told}" if told else "")
    assert world.condition("ReplicaFailure")[2] == text  # type: ignore[index]


def test_ttl_0_deletes_the_job_once_its_end_is_written() -> None:
    world = World(pytorch(workers=1, run_policy={"ttlSecondsAfterFinished": 0})).running()
    plan = world.exit("0", 0).step()
    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"
    assert [action.name for action in plan.actions] == ["train"]
    assert world.deleted
