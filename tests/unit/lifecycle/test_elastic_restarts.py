"""Failures in an elastic job: newcomers pay for their own, and members that change are no fault."""

from __future__ import annotations

import json

import pytest

from tests.unit.lifecycle.test_modes import Revised, resize, set_paused
from tests.unit.lifecycle.world import World, deepspeed, elastic
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.labels import LAUNCH


def uids(world: World, replicas: str) -> list[str]:
    return [world.pods[world.name(r)]["metadata"]["uid"] for r in replicas]


def grown(policy: str, budget: int = 3, *, by: int = 1) -> World:
    """Two replicas that ran for long, and newcomers that have just started."""
    job = elastic(1, 2, 5, policy=policy, run_policy={"backoffLimit": budget})
    world = World(job).running().advance(1000).settle()
    return resize(world, 2 + by).settle().run().settle()


# A newcomer.


@pytest.mark.parametrize(
    ("policy", "code", "budget", "spent"),
    [
        ("Never", 1, 3, 0),
        ("Never", 137, 3, 0),
        ("OnFailure", 1, 0, 0),
        ("OnFailure", 1, 1, 1),
        ("OnFailure", 1, 3, 3),
        ("ExitCode", 1, 3, 0),
        ("ExitCode", 137, 2, 2),
        ("Always", 1, 1, 1),
    ],
)
@pytest.mark.parametrize("comes_up", [True, False])
def test_a_newcomer_spends_the_budget_alone_and_then_is_lost(
    policy: str, code: int, budget: int, spent: int, comes_up: bool
) -> None:
    world = grown(policy, budget)
    others = uids(world, "01")
    for _ in range(spent + 1):
        if comes_up:
            world.advance(5).settle()
        world.exit("2", code).settle().advance(3).settle().advance(100).settle()
        world.run("2") if "2" in [name[-1] for name in world.pods] else None
    assert uids(world, "01") == others
    assert (world.phase, world.backoff) == ("Running", spent)
    assert world.aggregate == {"running": 2, "failed": 1}
    assert not any("taken away" in text for text in world.messages("Restart"))
    assert len(world.messages("Restart")) == spent
    assert world.exit("0", 0).settle().phase == "Succeeded"


def test_a_newcomer_is_retried_with_growing_delays_and_nobody_else_waits() -> None:
    world = grown("OnFailure", 9)
    for seconds in (10, 20, 40, 80):
        world.exit("2", 1).settle()
        record = world.status["internal"]["replicas"][world.name("2")]  # type: ignore[index]
        assert record["failures"] == {10: 1, 20: 2, 40: 3, 80: 4}[seconds]
        before = world.now
        while world.name("2") not in world.pods:
            world.advance(1).settle()
        assert (world.now - before).total_seconds() == seconds
        world.run().settle()
    world.evict("1").settle()
    assert world.name("1") in world.pods, "at once"
    assert world.backoff == 4


def test_a_change_of_size_neither_hastens_a_newcomer_nor_forgets_its_failures() -> None:
    world = grown("OnFailure", 9)
    for _ in range(3):
        world.exit("2", 1).settle().advance(60).settle().run().settle()
    world.exit("2", 1).settle()
    for size in (4, 5, 4):
        resize(world, size).settle().run().settle().advance(10).settle()
        assert world.name("2") not in world.pods
    world.advance(49).settle()
    assert world.name("2") not in world.pods
    world.advance(1).settle().run().settle().exit("2", 1).settle()
    assert world.backoff == 5
    record = world.status["internal"]["replicas"][world.name("2")]  # type: ignore[index]
    assert record["failures"] == 5


def test_newcomers_that_fail_together_cost_one() -> None:
    world = grown("OnFailure", 9, by=2)
    others = uids(world, "01")
    world.exit("2", 1).exit("3", 1).settle()
    assert world.backoff == 1
    world.advance(10).settle().run().settle()
    assert uids(world, "01") == others
    assert (world.phase, world.aggregate) == ("Running", {"running": 4})


def test_a_replacement_that_fails_soon_is_a_newcomer_too() -> None:
    """Nobody else starts anew, unlike under torchrun where the job is not elastic."""
    world = World(elastic(1, 3, 3)).running().advance(1000).settle()
    others = uids(world, "01")
    for _ in range(3):
        world.exit("2", 137).settle().advance(50).settle().run().settle()
    assert uids(world, "01") == others
    assert (world.phase, world.backoff) == ("Running", 3)
    assert world.exit("2", 137).settle().aggregate == {"running": 2, "failed": 1}


# A lost replica.


@pytest.mark.parametrize("scope", [None, "Replica"])
def test_growing_brings_a_lost_replica_back_and_shrinking_does_not(scope: str | None) -> None:
    run_policy = {"restartScope": scope} if scope else {}
    world = World(elastic(1, 4, 5, policy="Never", run_policy=run_policy)).running()
    world.exit("1", 1).settle()
    resize(world, 3).settle().advance(100).settle()
    assert world.aggregate == {"running": 2, "failed": 1}
    others = uids(world, "02")
    resize(world, 4).settle().run().settle()
    assert uids(world, "02") == others
    assert world.aggregate == {"running": 4}
    assert (world.phase, world.backoff) == ("Running", 0)
    new = world.messages("NewReplica")[-2:]
    assert sorted(text[text.index("]") + 1 :] for text in new) == [
        " again, attempt 3.",
        ", attempt 3: the job has grown.",
    ]


def test_what_came_back_without_a_budget_is_lost_again() -> None:
    world = grown("OnFailure", 1)
    for _ in range(2):
        world.exit("2", 1).settle().advance(20).settle().run().settle()
    resize(world, 4).settle().run().settle()
    assert world.aggregate == {"running": 4}
    world.exit("2", 1).settle()
    assert world.aggregate == {"running": 3, "failed": 1}
    assert world.backoff == 1


def test_a_replica_that_can_restart_is_not_taken_for_lost_when_the_job_grows() -> None:
    job = elastic(1, 3, 4, policy="ExitCode", run_policy={"restartScope": "Replica"})
    world = World(job).running()
    world.exit("1", 137)
    resize(world, 4).settle()
    assert world.backoff == 1


def test_a_replica_that_left_and_is_wanted_again_before_its_pod_has_gone_is_new() -> None:
    world = World(elastic(1, 3, 3)).running()
    resize(world, 2).step()
    world.step()
    resize(world, 3).settle().run().settle()
    assert world.attempt_of("2") == "3"
    assert (world.phase, world.backoff) == ("Running", 0)
    assert not world.messages("Restart")


def test_a_size_that_changes_after_single_restarts_gives_numbers_above_theirs() -> None:
    """Else a pod of an earlier attempt would be taken for the one wanted."""
    world = Revised(elastic(1, 2, 3, run_policy={"restartScope": "Replica"})).running()
    for _ in range(2):
        world.exit("0", 1).settle().advance(60).settle().run().settle()
    resize(world, 3).settle().run().settle()
    assert world.attempt_of("0") == "4"
    assert world.backoff == 2


# Survivors.


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_survivor_that_fails_as_members_change_costs_nothing(policy: str, size: int) -> None:
    world = World(elastic(1, 3, 4, policy=policy)).running().advance(1000).settle()
    resize(world, size).settle().run().settle().advance(20).exit("0", 1).settle()
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert world.aggregate == {"running": size}
    assert [text.rpartition("\n")[2] for text in world.messages("Restart")] == [
        "The members of the job had changed: it will be created again, at no cost."
    ]


def test_members_change_when_a_newcomer_comes_up_however_late() -> None:
    world = World(elastic(1, 2, 3, policy="Never")).running().advance(1000).settle()
    resize(world, 3).settle().advance(500).settle()
    world.run("2").settle().advance(30).exit("1", 1).settle().run().settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 3})


def test_survivors_that_fall_with_a_lost_newcomer_cost_nothing() -> None:
    world = grown("Never")
    world.advance(50).exit("2", 1).settle().advance(89).exit("1", 1).exit("0", 1).settle()
    world.run().settle()
    assert world.aggregate == {"running": 2, "failed": 1}
    assert "2 replicas will be created again, at no cost" in world.messages("Restart")[0]


@pytest.mark.parametrize(("seconds", "spent"), [(89, 0), (90, 1)])
def test_members_change_for_a_while(seconds: int, spent: int) -> None:
    world = grown("OnFailure")
    world.advance(seconds).exit("1", 1).settle()
    assert world.backoff == spent


def test_a_survivor_is_excused_once_until_it_has_run_well_for_long() -> None:
    world = World(elastic(1, 3, 3)).running().advance(1000).settle()
    for size, seconds, spent in ((2, 5, 0), (3, 700, 1), (2, 5, 1), (3, 5, 2)):
        resize(world, size).settle().run().settle().advance(5)
        world.exit("0", 1).settle().advance(60).settle().run().settle().advance(seconds).settle()
        assert world.backoff == spent, (size, seconds)


def test_what_started_after_the_change_is_no_survivor() -> None:
    """It was in its delay when the size changed."""
    world = grown("OnFailure")
    world.exit("2", 1).settle()
    resize(world, 4).settle().run().settle().advance(10).settle().run().settle()
    world.exit("2", 1).settle()
    assert world.backoff == 2


def test_what_is_taken_away_as_members_change_comes_back_and_uses_up_nothing() -> None:
    world = World(elastic(1, 3, 3)).running().advance(1000).settle()
    resize(world, 2).settle().evict("1").settle()
    assert world.messages("Restart") == [
        f"Pod[{world.name('1')}] was taken away (Evicted); it will be created again, at no cost."
    ]
    world.run().settle()
    resize(world, 3).settle().run().settle().exit("0", 1).settle().exit("1", 1).settle()
    assert world.backoff == 0


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_is_evicted_beside_one_that_is_lost_costs_nothing(*, is_gone: bool) -> None:
    """The pass that gives up the one leaves the other to the next."""
    world = World(elastic(1, 3, 3, policy="ExitCode")).running().advance(1000).settle()
    world.exit("1", 2).advance(5).exit("2", 137).evict("2").step()
    if is_gone:
        world.remove("2")
    world.settle()
    assert world.backoff == 0
    assert world.attempt_of("2") == "2"


def test_a_pod_on_its_way_out_holds_the_change_open() -> None:
    world = World(elastic(1, 3, 3)).running().advance(1000).settle()
    resize(world, 2).step()
    world.step()
    world.advance(90).exit("1", 1).step()
    assert world.backoff == 0


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", "Always"])
@pytest.mark.parametrize(("every", "runs_for"), [(10, 9), (18, 4)])
@pytest.mark.parametrize("settings", [Settings(), Settings.local()], ids=["cluster", "local"])
def test_a_job_that_always_fails_ends_however_often_its_size_changes(
    policy: str, every: int, settings: Settings, runs_for: int
) -> None:
    """Its budget is spent to the last, and no more."""
    budget = 3
    job = elastic(1, 2, 4, policy=policy, run_policy={"backoffLimit": budget})
    world = World(job, settings).running()
    age: dict[str, int] = {}
    for second in range(1, 1000):
        world.advance(1)
        if second % every == 0:
            resize(world, 2 + second // every % 3)
        world.settle().run()
        for name, pod in world.pods.items():
            uid = pod["metadata"]["uid"]
            age[uid] = age.get(uid, 0) + 1
            if age[uid] > runs_for and pod["status"]["phase"] == "Running":
                world.exit(name.rpartition("-")[2], 137)
        if world.settle().phase == "Failed":
            break
    assert world.phase == "Failed"
    assert world.backoff == (0 if policy == "Never" else budget)


def test_a_pause_forgets_who_was_excused() -> None:
    world = World(elastic(1, 3, 3)).running().advance(1000).settle()
    resize(world, 2).settle().exit("0", 1).settle().run().settle()
    set_paused(set_paused(world).settle(), False).settle().run().settle()
    resize(world, 3).settle().run().settle().exit("0", 1).settle()
    assert world.backoff == 0


def test_a_worker_of_a_deepspeed_job_that_fails_as_it_comes_pays_alone() -> None:
    """The change of size replaces worker-0, which holds the hostfile; the others stay."""
    job = deepspeed(workers=1, run_policy={"backoffLimit": 1})
    bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 2}
    job["spec"]["elastic"] = bounds
    world = World(job).running().advance(1000).settle()
    resize(world, 3).settle().run().settle()
    others = uids(world, "01")
    for spent in (1, 1):
        world.exit("2", 1).settle().advance(20).settle().run().settle()
        assert world.backoff == spent
    assert uids(world, "01") == others
    assert (world.phase, world.aggregate) == ("Running", {"running": 2, "failed": 1})
    world.advance(100).settle().exit("0", 1).settle()
    assert world.phase == "Failed", "a rank's failure is worker-0's, and the budget is spent"


def test_a_pod_is_told_whether_it_joins_others_or_all_start_with_it() -> None:
    """Decision 131: the launch over ssh lets newcomers alone end by their own failures."""
    job = deepspeed(workers=1)
    bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 2, "expectedReplicas": 1}
    job["spec"]["elastic"] = bounds
    world = World(job).running()

    def joins(replica: str) -> bool:
        launch = world.pods[world.name(replica)]["metadata"]["annotations"][LAUNCH]
        return bool(json.loads(launch).get("joins"))

    assert not joins("0")
    resize(world, 2).settle().run().settle()
    assert joins("1")
    world.exit("1", 1).settle().advance(100).settle()
    assert joins("1"), "restarted alone"
    set_paused(world).settle().advance(100).settle()
    set_paused(world, False).settle().run().settle()
    assert [joins(replica) for replica in "01"] == [False, False]


def test_a_newcomer_and_a_survivor_that_fails_with_it_are_told_and_restarted_each_for_itself() -> (
    None
):
    """Seen in one pass: the newcomer pays, the survivor does not, and nobody else is touched."""
    world = World(elastic(1, 3, 4)).running()
    kept = world.pods[world.name("2")]["metadata"]["uid"]
    world.advance(600)
    world.job["spec"]["elastic"]["expectedReplicas"] = 4
    world.settle().run().settle().advance(2)
    world.exit("1", 1).exit("3", 7).settle()
    followed, own = world.messages("Restart")
    assert f"Pod[{world.name('1')}] exited with error code 1" in followed
    assert "The members of the job had changed: it will be created again, at no cost." in followed
    assert f"Pod[{world.name('3')}] exited with error code 7" in own
    assert "(1 of 3 restarts)" in own
    assert (world.backoff, world.aggregate["running"]) == (1, 2)
    world.advance(60).settle().run().settle()
    assert world.aggregate == {"running": 4}
    assert world.pods[world.name("2")]["metadata"]["uid"] == kept
    assert [world.attempt_of(replica) for replica in "02"] == ["1", "1"]
