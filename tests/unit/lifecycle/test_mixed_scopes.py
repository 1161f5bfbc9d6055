"""`restartScope` of a replica type: some restart together, others one by one (decision 117)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, pytorch, template


def mixed(
    *, ps: str | None = "Replica", worker: str | None = None, policy: str = "OnFailure", **run: Any
) -> dict[str, Any]:
    """Three workers, and two parameter servers that restart one by one."""
    kinds: tuple[tuple[str, int, str | None], ...] = (("worker", 3, worker), ("ps", 2, ps))
    types = [
        {
            "type": name,
            "replicas": count,
            "restartPolicy": policy,
            "template": template(),
            **({"restartScope": scope} if scope else {}),
        }
        for name, count, scope in kinds
    ]
    return pytorch(types=types, run_policy=run)


ALL = ("worker-0", "worker-1", "worker-2", "ps-0", "ps-1")


def attempts(world: World) -> list[str]:
    """Of the pods of all replicas."""
    return [world.attempt_of(replica) for replica in ALL]


def uids(world: World, *replicas: str) -> set[str]:
    return {world.pods[world.name(replica)]["metadata"]["uid"] for replica in replicas}


def test_a_parameter_server_restarts_alone() -> None:
    world = World(mixed()).running()
    world.exit("ps-1", 3).settle().advance(10).settle()
    assert attempts(world) == ["1", "1", "1", "1", "2"]
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]
    assert "Restarting it in 10 s (1 of 3 restarts)" in world.messages("Restart")[0]


def test_workers_restart_together_and_leave_the_parameter_servers_alone() -> None:
    world = World(mixed()).running()
    servers = uids(world, "ps-0", "ps-1")
    world.exit("worker-1", 3).settle().advance(10).settle()
    assert attempts(world) == ["2", "2", "2", "1", "1"]
    assert uids(world, "ps-0", "ps-1") == servers
    assert "Restarting 3 replicas" in world.messages("Restart")[0]
    world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 1)
    assert world.status is not None
    counts = {task["type"]: task["restartCount"] for task in world.status["tasks"]}
    assert counts == {"worker": 3, "ps": 0}


def test_each_goes_on_from_its_own_attempt() -> None:
    world = World(mixed(backoffLimit=10)).running()
    for replica in ("ps-0", "ps-0", "worker-2", "ps-0", "worker-0"):
        world.exit(replica, 3).settle().advance(600).settle().run().settle()
    assert world.phase == "Running"
    assert world.backoff == 5
    workers, servers = attempts(world)[:3], attempts(world)[3:]
    assert len(set(workers)) == 1
    assert servers == ["4", "1"]
    assert world.status is not None
    ended = [
        attempt.get("replica", "").rpartition("-")[0][-2:] for attempt in world.status["attempts"]
    ]
    assert ended == ["ps", "ps", "er", "ps", "er", ""]


def test_the_attempt_of_the_others_goes_on_when_one_restarts_alone() -> None:
    world = World(mixed()).running()
    assert world.status is not None
    (current,) = world.status["attempts"]
    world.advance(60).exit("ps-1", 3).settle()
    entry, last = world.status["attempts"]
    assert last == current
    assert (entry["number"], entry["replica"], entry["exitCode"]) == (1, world.name("ps-1"), 3)


def test_both_may_fail_at_once() -> None:
    world = World(mixed()).running()
    world.exit("ps-0", 3).exit("worker-1", 4).settle().advance(20).settle()
    assert attempts(world) == ["3", "3", "3", "2", "1"]
    assert world.backoff == 2
    world.run().settle()
    assert world.phase == "Running"


def test_the_budget_is_one() -> None:
    world = World(mixed(backoffLimit=1)).running()
    world.exit("ps-0", 3).settle().advance(10).settle().run().settle()
    world.exit("worker-1", 4).settle()
    assert world.condition("Failed")[1] == "BackoffLimitExceeded"  # type: ignore[index]


def test_one_that_fails_for_good_fails_the_job() -> None:
    world = World(mixed(policy="Never")).running()
    world.exit("ps-1", 3).settle()
    assert world.phase == "Failed"
    assert world.status is not None
    assert world.status["attempts"][-1]["replica"] == world.name("ps-1")


def test_workers_wait_for_the_last_of_their_old_pods_and_servers_do_not() -> None:
    world = World(mixed()).running()
    world.exit("worker-1", 3).step()
    world.advance(20).remove("worker-1")
    world.step()
    assert world.name("worker-1") not in world.pods
    world.exit("ps-0", 3).step()
    world.advance(20).remove("ps-0")
    world.step()
    assert world.attempt_of("ps-0") == "2"
    assert world.name("worker-1") not in world.pods
    world.settle()
    assert len(world.pods) == 5


def test_a_server_that_still_ends_does_not_hold_up_the_workers() -> None:
    world = World(mixed()).running()
    world.exit("ps-0", 3).exit("worker-1", 3).step()
    world.advance(30)
    for replica in ("worker-0", "worker-1", "worker-2"):
        world.remove(replica)
    world.step()
    assert {world.attempt_of(f"worker-{i}") for i in range(3)} == {"3"}
    assert world.attempt_of("ps-0") == "1"


def test_a_lost_server_is_no_cause_of_the_workers_failures() -> None:
    world = World(mixed()).running()
    world.pods[world.name("ps-0")]["spec"]["nodeName"] = "gone"
    world.lost_nodes = frozenset({"gone"})
    world.exit("worker-1", 3).settle()
    assert world.backoff == 1


def test_a_server_that_is_taken_away_comes_back_alone() -> None:
    world = World(mixed(policy="Never")).running()
    workers = uids(world, "worker-0", "worker-1", "worker-2")
    world.evict("ps-0").settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert uids(world, "worker-0", "worker-1", "worker-2") == workers
    assert world.attempt_of("ps-0") == "2"


def test_while_a_server_is_down_its_failure_is_told() -> None:
    world = World(mixed()).running()
    world.exit("ps-0", 3).settle().advance(10).settle()
    assert world.condition("ReplicaFailure")[0] == "True"  # type: ignore[index]
    assert world.aggregate == {"running": 4, "creating": 1}


def test_under_always_a_server_that_ends_with_0_runs_again_alone() -> None:
    world = World(mixed(policy="Always")).running()
    world.exit("ps-0", 0).settle().advance(10).settle().advance(10).settle()
    assert attempts(world) == ["1", "1", "1", "2", "1"]
    assert world.backoff == 1


def test_after_a_pause_all_start_together() -> None:
    world = World(mixed()).running()
    world.exit("ps-0", 3).settle().advance(10).settle().run().settle()
    for paused in (True, False):
        world.job["spec"]["runMode"] = {"pause": {"enabled": paused}}
        world.settle()
    assert len(set(attempts(world))) == 1


def test_an_attempt_after_a_pause_is_above_that_of_a_replica_that_restarted_alone() -> None:
    world = World(mixed()).running()
    for _ in range(2):
        world.exit("ps-0", 3).settle().advance(60).settle().run().settle()
    assert attempts(world) == ["1", "1", "1", "3", "1"]
    for paused in (True, False):
        world.job["spec"]["runMode"] = {"pause": {"enabled": paused}}
        world.settle()
    assert attempts(world) == ["4"] * 5


@pytest.mark.parametrize(
    ("job", "together"),
    [
        (mixed(ps=None), True),
        (mixed(ps="Job"), True),
        (mixed(ps="Replica", worker="Replica"), False),
        (mixed(ps=None, restartScope="Replica"), False),
        (mixed(ps="Job", worker="Job", restartScope="Replica"), True),
    ],
)
def test_types_of_one_scope_are_as_a_job_of_that_scope(job: dict[str, Any], together: bool) -> None:
    world = World(job).running()
    world.exit("ps-0", 3).settle().advance(10).settle()
    expected = ["2"] * 5 if together else ["1", "1", "1", "2", "1"]
    assert attempts(world) == expected


def test_a_type_may_restart_together_in_a_job_that_does_not() -> None:
    world = World(mixed(ps=None, worker="Job", restartScope="Replica")).running()
    world.exit("worker-0", 3).settle().advance(10).settle()
    assert attempts(world) == ["2", "2", "2", "1", "1"]


def test_the_next_look_is_at_the_first_of_both() -> None:
    world = World(mixed(policy="Always")).running()
    world.exit("ps-0", 0).step()
    assert world.look().wake_at == world.now + timedelta(seconds=10)
    world = World(mixed(policy="ExitCode")).running()
    world.exit("worker-1", 1).step()
    assert world.look().wake_at == world.now + timedelta(seconds=2)
