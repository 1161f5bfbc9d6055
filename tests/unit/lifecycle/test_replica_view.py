"""How a replica's end is read, and told, where little is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import START, World, pytorch
from trainyard.lifecycle import texts
from trainyard.lifecycle.internal_status import InternalStatus, ReplicaRecord, attempt_end
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica, sort_replicas
from trainyard.lifecycle.restart.single_restarts import finished_attempt
from trainyard.schema.times import render


def replica(world: World, entry: dict[str, Any] | None = None) -> Replica:
    """The only replica, as it is read; `entry` is what status said of it."""
    entries = {world.name("0"): {"uid": "u", **entry}} if entry else {}
    (found,) = sort_replicas(world.workload, InternalStatus(), entries, world.observed()).replicas
    return found


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"containers": [{"exitCode": 0}, {"exitCode": 3}]}, Exit(3, "Error")),
        ({"containers": [{"exitCode": 137, "reason": "OOMKilled"}]}, Exit(137, "OOMKilled")),
        ({"containers": [{"exitCode": 0}], "reason": "Evicted"}, Exit(reason="Evicted")),
        ({}, Exit(reason="Error")),
    ],
)
def test_a_failure_is_remembered_when_its_pod_is_gone(
    entry: dict[str, Any], expected: Exit
) -> None:
    found = replica(World(pytorch(workers=1)), {"phase": "Failed", **entry})
    assert (found.state, found.exit) == (State.FAILED, expected)


def test_an_end_that_status_told_is_the_replicas_own_whatever_becomes_of_its_pod() -> None:
    world = World(pytorch(workers=1)).running().exit("0", 1).evict("0")
    uid = world.pods[world.name("0")]["metadata"]["uid"]
    found = replica(world, {"uid": uid, "phase": "Failed"})
    assert found.exit is not None
    assert (found.state, found.exit.free) == (State.FAILED, False)


def test_who_took_a_pod_and_when() -> None:
    world = World(pytorch(workers=1)).running()
    world.take(world.name("0"))
    world.advance(3)
    assert replica(world).exit == Exit(reason="Deleted", at=START, free=True)
    world.exit("0", 0)
    assert replica(world).exit == Exit(reason="Deleted", at=START, free=True)
    world.pods[world.name("0")]["status"]["reason"] = "NodeLost"
    found = replica(world).exit
    assert found is not None
    assert found.reason == "NodeLost"
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    world.pods[world.name("0")]["status"]["conditions"] = [target]
    found = replica(world).exit
    assert found is not None
    assert found.reason == "PreemptionByScheduler"


# Words.


@pytest.mark.parametrize(
    ("end", "lost", "failed"),
    [
        (Exit(), "Pod[N] was taken away (Deleted)", "N failed"),
        (Exit(reason="Evicted"), "Pod[N] was taken away (Evicted)", "N failed (Evicted)"),
    ],
)
def test_an_end_without_a_code_has_its_words(end: Exit, lost: str, failed: str) -> None:
    world = World(pytorch(workers=1))
    found = replica(world)._replace(exit=end)
    assert texts.taken_away(found) == lost.replace("N", found.name)
    message = f"PyTorchTrainingJob train has failed: {failed.replace('N', found.name)}"
    assert texts.job_failure(world.workload, found) == message


def test_all_that_is_known_of_a_failure_is_told() -> None:
    end = Exit(9, "OOMKilled", init_container="fetch")
    found = replica(World(pytorch(workers=1)))._replace(exit=end)
    assert texts.replica_failure(found).endswith(" (OOMKilled, init container fetch)")


@pytest.mark.parametrize(
    ("seconds", "when"), [(0.0, ""), (0.5, " in 0.5 s"), (1.0, " in 1 s"), (10.0, " in 10 s")]
)
def test_when_a_restart_comes_is_told(seconds: float, when: str) -> None:
    end = Exit(code=0)
    found = replica(World(pytorch(workers=1)))._replace(exit=end)
    text = f"Pod[{found.name}] has completed; it will run again{when} (1 of 2 restarts)."
    assert texts.restart(found, 1, seconds, texts.budget(1, 2)) == text


# The attempt of one replica.


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Exit(0, "Other"), "Completed"),
        (Exit(1, "OOMKilled"), "OOMKilled"),
        (Exit(1), "Error"),
        (Exit(), "Error"),
    ],
)
def test_an_attempts_end_has_a_reason(end: Exit, reason: str) -> None:
    found = replica(World(pytorch(workers=1)).settle())._replace(exit=end)
    assert finished_attempt(InternalStatus(), found, START)["reason"] == reason


def seconds(number: int) -> datetime:
    return START + timedelta(seconds=number)


@pytest.mark.parametrize(
    ("created", "started", "ended", "expected"),
    [
        (1, 2, 9, 2),
        (1, None, 9, 1),
        (5, 6, 3, 3),  # clocks of nodes differ
        (8, 8, 9, 7),
        (None, None, 9, 4),
    ],
)
def test_an_attempt_began_with_its_pod(
    created: int | None, started: int | None, ended: int, expected: int
) -> None:
    """Without a pod, when that was to be created; and never after now, second 7."""
    found = replica(World(pytorch(workers=1)).settle())
    assert found.pod is not None
    pod = None
    if created is not None:
        start = None if started is None else seconds(started)
        pod = replace(found.pod, created=seconds(created), started=start)
    found = found._replace(pod=pod, exit=Exit(1, at=seconds(ended)))
    attempts = ({"number": 1, "startTime": render(START)},)
    internal = InternalStatus(
        records={found.name: ReplicaRecord(2, not_before=seconds(4))}, attempts=attempts
    )
    attempt = finished_attempt(internal, found, seconds(7))
    assert (attempt["number"], attempt["startTime"]) == (2, render(seconds(expected)))


def test_the_first_attempt_of_a_pod_that_has_gone_began_with_the_job() -> None:
    found = replica(World(pytorch(workers=1)))._replace(exit=Exit(1))
    attempts = ({"number": 1, "startTime": render(START)},)
    for records in ({}, {found.name: ReplicaRecord(1)}):
        told = finished_attempt(
            InternalStatus(records=records, attempts=attempts), found, seconds(7)
        )
        assert told["startTime"] == render(START)


def test_an_attempt_ends_once() -> None:
    """And one that was still to start when it ended starts with its end."""
    due = render(seconds(5))
    internal = InternalStatus(attempts=({"number": 1, "startTime": due},))
    closed = internal.close(attempt_end(seconds(3), "Paused"))
    now = render(seconds(3))
    entry = {"number": 1, "startTime": now, "endTime": now, "reason": "Paused"}
    assert closed.attempts == (entry,)
    assert closed.close(attempt_end(seconds(9), "Error")) == closed
