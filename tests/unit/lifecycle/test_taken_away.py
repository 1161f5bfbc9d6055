"""Replicas that are taken away: what costs nothing, and what is their own end all the same."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import START, World, generic, pytorch, torchrun
from trainyard.schema.times import render

NEVER_MIND = {"successRules": [{"worker": [0]}], "failureRules": [{"worker": [1, 2]}]}


def fail_peers(world: World) -> World:
    """Replica 2 is away: the three others fail a second later, and then the controller looks."""
    world.advance(1).exit("0", 1).exit("1", 1).exit("3", 1)
    return world.advance(1).settle()


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode", "Never"])
@pytest.mark.parametrize("how", ["deleted", "gone"])
def test_a_deletion_seen_together_with_the_failures_it_led_to_is_their_cause(
    policy: str, how: str
) -> None:
    """A controller that was away finds all of it at once."""
    world = World(pytorch(policy=policy)).running()
    if how == "deleted":
        world.take(world.name("2"), grace=30)
    else:
        world.remove("2")
    fail_peers(world)
    assert (world.phase, world.backoff) == ("Pending", 0)


def test_a_failure_well_before_a_deletion_is_the_cause() -> None:
    world = World(pytorch()).running()
    world.exit("0", 1).advance(5).take(world.name("2"), grace=30).settle()
    assert world.backoff == 1


@pytest.mark.parametrize("reason", ["Evicted", "Terminated", "NodeShutdown"])
def test_exit_0_in_answer_to_an_eviction_is_no_success(reason: str) -> None:
    world = World(pytorch(workers=2)).running()
    world.exit("0", 0)
    world.pods[world.name("0")]["status"] |= {"phase": "Failed", "reason": reason}
    world.settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert {world.attempt_of(r) for r in "01"} == {"2"}


def disrupt(pod: dict[str, Any]) -> None:
    """As the node controller marks all pods of a node that is gone, ended ones too."""
    pod["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    ]


@pytest.mark.parametrize(("code", "row"), [(0, "succeeded"), (9, "failed")])
@pytest.mark.parametrize("how", ["marked", "deleted", "deleted within the second", "gone"])
def test_an_end_that_was_told_stays_so_whatever_becomes_of_the_pod(
    code: int, row: str, how: str
) -> None:
    world = World(generic(workers=3, policy="Never", **NEVER_MIND)).running()
    world.exit("1", code).settle()
    if how == "marked":
        disrupt(world.pods[world.name("1")])
    elif how == "gone":
        world.remove("1")
    else:
        world.advance(0 if "within" in how else 60).take(world.name("1"))
    world.step()
    assert world.aggregate == {"running": 2, row: 1}
    world.settle()
    assert world.aggregate == {"running": 2, row: 1}
    assert world.status is not None
    assert world.status["restartCount"] == 0


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode", "Never"])
@pytest.mark.parametrize("make", [pytorch, torchrun])
def test_failures_beside_a_replica_that_cannot_be_reached_cost_nothing(
    make: Any, policy: str
) -> None:
    """Its node is lost, and its peers end because of that."""
    world = World(make(policy=policy)).running()
    world.pods[world.name("2")]["spec"]["nodeName"] = "lost"
    world.lost_nodes = frozenset({"lost"})
    fail_peers(world.settle())
    world.settle().advance(10).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert {world.attempt_of(r) for r in "0123"} == {"2"}


@pytest.mark.parametrize("reason", ["ContainerStatusUnknown", "Unknown"])
def test_a_container_that_vanished_with_a_reboot_of_its_node_costs_nothing(reason: str) -> None:
    world = World(pytorch(policy="Never")).running()
    world.exit("1", 255, reason=reason).settle().run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert {world.attempt_of(r) for r in "0123"} == {"2"}


def test_an_attempt_whose_pod_was_gone_before_anybody_looked_has_a_start() -> None:
    world = World(generic(limit=3)).running()
    world.advance(5).remove("1").settle().run().settle()
    world.advance(5).remove("1").settle()
    times = [(a["number"], a["startTime"][-3:-1], a["endTime"][-3:-1]) for a in attempts(world)]
    assert times == [(1, "00", "05"), (2, "05", "10")]


def test_an_attempt_that_was_over_within_the_second_does_not_end_before_it_starts() -> None:
    """Deletion timestamps are whole seconds."""
    world = World(generic(limit=3))
    world.advance(0.6).running()
    world.take(world.name("1"), grace=30)
    moment = world.pods[world.name("1")]["metadata"]
    moment["deletionTimestamp"] = render(START + timedelta(seconds=30))
    world.settle()
    (attempt,) = attempts(world)
    assert attempt["startTime"] == attempt["endTime"] == render(START)


def attempts(world: World) -> list[dict[str, Any]]:
    """Those that have ended."""
    assert world.status is not None
    return [attempt for attempt in world.status["attempts"] if "endTime" in attempt]


def test_a_replica_that_is_gone_as_its_job_succeeds_is_told_as_taken_away() -> None:
    """Not as running, by what was told last, nor as failed, which nobody saw."""
    rules = {"rules": [{"action": "Count", "onReasons": ["Deleted"]}]}
    world = World(pytorch(policy="ExitCode", runPolicy={"podFailurePolicy": rules})).running()
    for replica in "0123":
        if replica != "2":
            world.exit(replica, 0)
    world.remove("2")
    world.step()
    assert (world.phase, world.aggregate) == ("Succeeded", {"succeeded": 3, "deleted": 1})
    failure = world.condition("ReplicaFailure")
    assert failure is not None
    assert failure[0] == "False"


@pytest.mark.parametrize(
    ("code", "rules", "phase"),
    [(0, NEVER_MIND, "Running"), (1, NEVER_MIND, "Running"), (1, {}, "Failed")],
)
def test_a_pod_whose_creation_came_late_leaves_the_end_of_its_replica(
    code: int, rules: dict[str, Any], phase: str
) -> None:
    """A request may arrive when a second one has made the pod, which has ended and is gone."""
    world = World(generic(workers=3, policy="Never", cleanUpPolicy="None", **rules)).running()
    late = copy.deepcopy(world.pods[world.name("1")])
    late["metadata"]["uid"], late["status"] = "late", {"phase": "Pending"}
    world.exit("1", code).settle().remove("1").settle()
    replica = world.status["tasks"][0]["replicas"][1]
    world.pods[world.name("1")] = late
    world.run("1").settle()
    assert world.phase == phase
    assert world.status["tasks"][0]["replicas"][1] == replica
    assert world.name("1") not in world.pods


def test_a_pod_whose_creation_came_late_leaves_the_failure_that_clean_up_deleted() -> None:
    """The job has ended, and says by whose failure."""
    world = World(generic(workers=3, policy="Never", cleanUpPolicy="All")).running()
    late = copy.deepcopy(world.pods[world.name("1")])
    late["metadata"]["uid"], late["status"] = "late", {"phase": "Pending"}
    world.exit("1", 1).settle()
    replica = world.status["tasks"][0]["replicas"][1]
    assert (replica["phase"], replica["reason"]) == ("Deleted", "Error")
    world.pods[world.name("1")] = late
    world.run("1").settle()
    assert world.phase == "Failed"
    assert world.status["tasks"][0]["replicas"][1] == replica
    assert world.name("1") not in world.pods
