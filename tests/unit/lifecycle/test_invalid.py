"""A job that breaks rules: it fails, and what runs of it is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lifecycle.world import START, World, pytorch
from trainyard.kube.resources import PODS
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Delete, Event, Patch, Plan
from trainyard.lifecycle.completion.invalid_object import InvalidObject, plan_invalid
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pods.pod_cleanup import stop_all
from trainyard.schema.times import render

INVALID = InvalidObject("PyTorchTrainingJob", "train", 3, ["spec.a: no", "spec.b: no"])
FINISHED = texts.FINISHED
MESSAGE = "PyTorchTrainingJob train is invalid: spec.a: no; spec.b: no"


def pods() -> tuple[Pod, ...]:
    """One in each state, by number: it runs; it waits for a node; it has ended, well or badly; it
    is on its way out; it has been stopped already."""
    world = World(pytorch(workers=6)).settle().run("0", "2", "3", "4", "5")
    world.exit("2", 0).exit("3", 1).take(world.name("4"))
    world.pods[world.name("5")]["spec"]["activeDeadlineSeconds"] = 1
    return world.observed().pods


def stops() -> tuple[Patch | Delete, ...]:
    first, second = pods()[:2]
    return (
        Patch(PODS, first.name, first.uid, {"spec": {"activeDeadlineSeconds": 1}}),
        Delete(PODS, second.name, second.uid),
    )


def test_what_runs_is_stopped_and_what_has_no_node_goes() -> None:
    assert tuple(stop_all(pods())) == stops()


def test_it_fails_and_all_problems_are_told() -> None:
    before = {"phase": "Running", "startTime": "then", "observedGeneration": 2}
    made = plan_invalid(INVALID, before, START, pods())
    now = render(START)
    condition = {"reason": "InvalidSpec", "message": MESSAGE, "lastTransitionTime": now}
    assert made.status is not None
    conditions = {c["type"]: c for c in made.status.pop("conditions")}
    assert conditions == {
        kind: {"type": kind, "status": status, **condition}
        for kind, status in (("Running", "False"), ("Failed", "True"), ("Completed", "True"))
    }
    assert made.status == {
        "phase": "Failed",
        "startTime": "then",
        "completionTime": now,
        "observedGeneration": 3,
        "internal": {"ended": "Failed"},
    }
    assert made.events == (Event("Warning", "InvalidSpec", MESSAGE),)
    assert made.actions == stops()


def test_conditions_that_it_had_keep_their_times() -> None:
    held = {"type": "Initialized", "status": "True", "reason": "-", "message": "m"}
    held["lastTransitionTime"] = "then"
    status = plan_invalid(INVALID, {"conditions": [held]}, START).status
    assert status is not None
    assert held in status["conditions"]


@pytest.mark.parametrize(("reason", "stopped"), [("InvalidSpec", True), ("BackoffLimit", False)])
@pytest.mark.parametrize("generation", [2, 3])
def test_after_the_end_only_a_failure_for_the_spec_goes_on_stopping(
    reason: str, stopped: bool, generation: int
) -> None:
    """One that has failed for something else is cleaned up by its policy."""
    before: dict[str, Any] = plan_invalid(INVALID, None, START).status or {}
    before["conditions"] = [c | {"reason": reason} for c in before["conditions"]]
    before["observedGeneration"] = generation
    made = plan_invalid(INVALID, before, START, pods())
    new = None if generation == 3 else before | {"observedGeneration": 3}
    assert made == Plan(new, stops() if stopped else ())
    forged = before | {"observedGeneration": 3, "phase": "Running"}
    right = before | {"observedGeneration": 3}
    assert plan_invalid(INVALID, forged, START, pods()).status == right


def test_it_is_not_paused_any_more() -> None:
    held = {"type": "Paused", "status": "True", "reason": "Paused", "message": "m"}
    held["lastTransitionTime"] = "then"
    status = plan_invalid(INVALID, {"phase": "Paused", "conditions": [held]}, START).status
    assert status is not None
    assert "Paused" not in {condition["type"] for condition in status["conditions"]}


@pytest.mark.parametrize(("ended", "failed"), [("Failed", "True"), ("Succeeded", "False")])
def test_an_end_whose_conditions_were_erased_is_told_again(ended: str, failed: str) -> None:
    before = {"phase": "Running", "internal": {"ended": ended}, "conditions": []}
    made = plan_invalid(INVALID, before, START)
    assert made.status is not None
    conditions = {c["type"]: c for c in made.status["conditions"]}
    assert (made.status["phase"], conditions["Failed"]["status"]) == (ended, failed)
    assert conditions["Completed"]["status"] == "True"
    expected = ("InvalidSpec", MESSAGE) if ended == "Failed" else ("Succeeded", FINISHED)
    assert (conditions["Failed"]["reason"], conditions["Failed"]["message"]) == expected
    assert (made.actions, made.events) == ((), ())
