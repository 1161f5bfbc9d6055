"""Restarts that would end as the last ones did: told, and with a judge not made (decision 229)."""

from __future__ import annotations

import pytest

from tests.unit.lifecycle.test_modes import resize
from tests.unit.lifecycle.world import World, deepspeed, elastic, generic, pytorch
from trainyard.lifecycle.pod_reports import Checkpoint, PodReports, Progress

MODULE = """\
Traceback (most recent call last):
  File "/work/train.py", line 3, in <module>
    import nets
ModuleNotFoundError: No module named 'nets'"""
NAN = """\
Traceback (most recent call last):
  File "/work/train.py", line 41, in main
    guard(loss)
FloatingPointError: the loss is nan"""
RESET = """\
Traceback (most recent call last):
  File "/work/train.py", line 9, in main
    fetch(url)
ConnectionResetError: [Errno 104] Connection reset by peer"""
JUDGED = {"restartJudge": True, "backoffLimit": 9}
SAYS = "Failure 2 in a row by ModuleNotFoundError: No module named 'nets' (train.py:3)"


def fail(world: World, replica: str, message: str, code: int = 1, **more: str) -> World:
    """A replica of a running job fails, and whatever restarts runs again."""
    world.advance(1).exit(replica, code, message=message, **more).settle()
    return world.advance(30).settle().advance(400).settle().run().settle()


def test_what_fails_again_in_the_same_way_is_told_and_restarted_as_ever() -> None:
    world = World(pytorch(run_policy={"backoffLimit": 3})).running()
    fail(world, "0", MODULE)
    assert not any("in a row" in text for text in world.messages("Restart"))
    fail(world, "2", MODULE)
    assert (world.phase, world.backoff) == ("Running", 2)
    assert SAYS in world.messages("Restart")[-1]
    assert world.status is not None
    assert [a.get("repeated") for a in world.status["attempts"]] == [1, 2, None]


def test_a_judge_ends_the_job_with_restarts_left() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    fail(world, "0", MODULE)
    fail(world, "1", MODULE)
    assert (world.phase, world.backoff) == ("Failed", 1)
    reason, message = world.condition("Failed")[1:]  # type: ignore[index]
    assert reason == "RestartsInVain"
    assert SAYS in message
    assert SAYS in world.condition("ReplicaFailure")[2]  # type: ignore[index]


@pytest.mark.parametrize("between", [NAN, RESET, ""])
def test_another_failure_in_between_begins_the_count_anew(between: str) -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for words in (MODULE, between, MODULE):
        fail(world, "0", words)
    assert (world.phase, world.backoff) == ("Running", 3)


def test_what_was_taken_away_in_between_says_nothing() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    fail(world, "0", MODULE)
    world.evict("1").settle().advance(400).settle().run().settle()
    fail(world, "0", MODULE)
    assert world.phase == "Failed"


@pytest.mark.parametrize(
    ("code", "message"), [(1, RESET), (137, ""), (143, ""), (138, ""), (1, "")]
)
def test_what_may_pass_is_restarted_while_there_is_budget(code: int, message: str) -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(8):
        fail(world, "0", message, code)
    assert (world.phase, world.backoff) == ("Running", 8)


def test_a_long_run_may_have_got_further() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(4):
        world.advance(world.settings.backoff_reset_seconds)
        fail(world, "0", NAN)
    assert (world.phase, world.backoff) == ("Running", 4)


def test_the_fallout_that_is_seen_first_does_not_hide_the_cause() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(2):
        world.advance(5).exit("0", 1, message=RESET).step()
        assert world.phase == "Running", "the first may not be the cause"
        world.advance(1).exit("1", 1, message=MODULE).settle()
        world.advance(400).settle().run().settle()
    assert world.phase == "Failed"
    assert world.name("1") in world.condition("Failed")[2]  # type: ignore[index]


def test_a_kill_that_is_seen_late_is_the_cause() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(3):
        world.advance(5).exit("0", 1, message=NAN).step()
        world.exit("1", 137).settle()
        world.advance(30).settle().advance(400).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 3)


def test_each_replica_that_restarts_alone_is_judged_alone() -> None:
    world = World(
        generic(limit=9, successRules=[{"worker": [0]}], runPolicy={"restartJudge": True})
    )
    fail(world.running(), "0", MODULE)
    fail(world, "1", MODULE)
    assert world.phase == "Running"
    fail(world, "1", MODULE)
    assert (world.phase, world.aggregate) == ("Running", {"running": 1, "failed": 1})
    world.remove("1").settle()
    assert world.aggregate == {"running": 1, "failed": 1}, "its pod is not needed for that"


def test_an_elastic_job_goes_on_without_what_fails_again() -> None:
    world = World(elastic(1, 3, 3, run_policy=JUDGED)).running()
    fail(world.advance(100), "1", MODULE)
    fail(world.advance(100), "1", MODULE)
    assert (world.phase, world.backoff) == ("Running", 1)
    assert world.aggregate == {"running": 2, "failed": 1}


def test_a_rule_that_restarts_goes_before_the_judge() -> None:
    rule = {"action": "Restart", "onExitCodes": {"operator": "In", "values": [1]}}
    policy = {**JUDGED, "podFailurePolicy": {"rules": [rule]}}
    world = World(deepspeed(run_policy=policy)).running()
    for _ in range(3):
        fail(world, "1", MODULE)
    assert world.backoff == 3


def test_too_little_memory_at_the_same_place_is_the_same() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(2):
        fail(world, "0", f"12:00:0{_} loading /data/all.bin", 137, reason="OOMKilled")
    assert world.phase == "Failed"


def tell(world: World, step: int, checkpoint: int | None = None) -> None:
    """The job says that it has done so many steps."""
    made = Checkpoint("/ckpt", world.now, checkpoint) if checkpoint is not None else None
    world.reports = PodReports(progress=Progress(world.now, step=step, checkpoint=made))
    world.settle()


def test_what_got_further_in_between_is_not_in_vain() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for number in range(1, 5):
        tell(world.advance(1), 10 * number)
        fail(world, "0", NAN)
    assert (world.phase, world.backoff) == ("Running", 4)
    fail(world, "0", NAN)
    assert world.phase == "Failed"


def test_steps_that_are_done_again_are_no_gain_where_checkpoints_are_told() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for step in (10, 12):
        tell(world.advance(1), step, checkpoint=5)
        fail(world, "0", NAN)
    assert world.phase == "Failed"


def test_a_long_run_that_got_no_further_is_in_vain() -> None:
    world = World(pytorch(run_policy=JUDGED)).running()
    for _ in range(2):
        tell(world.advance(world.settings.backoff_reset_seconds), 10)
        fail(world, "0", NAN)
    assert world.phase == "Failed"


def test_getting_further_refills_the_budget_where_that_is_asked_for() -> None:
    policy = {"backoffLimit": 2, "backoffReset": "OnProgress"}
    world = World(pytorch(run_policy=policy)).running()
    for number in range(1, 6):
        tell(world.advance(1), 10 * number)
        assert world.backoff == 0
        fail(world, "0", "", 137)
    assert (world.phase, world.backoff) == ("Running", 1)
    fail(world, "0", "", 137)
    assert (world.phase, world.backoff) == ("Running", 2)
    fail(world, "0", "", 137)
    assert world.phase == "Failed"


def test_replicas_that_restart_alone_get_their_budgets_back() -> None:
    world = World(generic(limit=1, runPolicy={"backoffReset": "OnProgress"})).running()
    for number in range(1, 4):
        tell(world.advance(1), 10 * number)
        fail(world, "1", "", 137)
    assert world.phase == "Running"
    fail(world, "1", "", 137)
    assert world.phase == "Failed"


def test_a_restart_at_no_cost_leaves_the_position_from_which_the_budget_is_given_back() -> None:
    policy = {"backoffLimit": 9, "backoffReset": "OnProgress"}
    world = World(elastic(1, 3, 5, policy="OnFailure", run_policy=policy)).running()
    tell(world.advance(1000), 100)
    world.exit("0", 1).settle().advance(60).settle().run().settle()
    assert world.backoff == 1
    resize(world.advance(1000).settle(), 4).settle().run().settle()
    tell(world.advance(5), 20)
    world.exit("1", 1).settle().advance(60).settle().run().settle()
    tell(world.advance(60), 50)
    assert world.backoff == 1, "step 100 was not passed"
    tell(world.advance(60), 101)
    assert world.backoff == 0


def test_without_the_switch_getting_further_changes_no_count() -> None:
    world = World(pytorch(run_policy={"backoffLimit": 2})).running()
    for number in range(1, 4):
        tell(world.advance(1), 10 * number)
        fail(world, "0", "", 137)
    assert world.phase == "Failed"
