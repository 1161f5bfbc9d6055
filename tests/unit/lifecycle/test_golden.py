"""Whole lives, pass by pass: changes of status, actions, events and wake-ups, kept in `golden/`.

`UPDATE_GOLDEN=1 pytest tests/unit/lifecycle/test_golden.py` writes them anew; read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.lifecycle.world import World, elastic, generic, pytorch, torchrun
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import Plan
from trainyard.lifecycle.actions import Action, Create, Delete, Patch
from trainyard.lifecycle.observed import Conflict, Refusal
from trainyard.operator.reconcile.reconcile_log import changes

GOLDEN = Path(__file__).parent / "golden"


class Diary(World):
    """A world that writes down every pass that did something."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self.pages: list[dict[str, Any]] = []

    def step(self) -> Plan:
        before = self.status or {}
        plan = super().step()
        page: dict[str, Any] = {}
        if plan.status is not None:
            page["status"] = dict(changes(before, self.status))
        if plan.actions:
            page["actions"] = [_describe(action) for action in plan.actions]
        if plan.events:
            page["events"] = [f"{e.type} {e.reason}: {e.message}" for e in plan.events]
        if plan.wake_at is not None:
            page["wake in seconds"] = (plan.wake_at - self.now).total_seconds()
        if page:
            self.pages.append({"at": self.now.strftime("%H:%M:%S"), **page})
        return plan


def _describe(action: Action) -> str:
    match action:
        case Create():
            return f"create {action.resource.plural} {action.name}"
        case Delete():
            return (
                f"delete {action.resource.plural} {action.name} {action.uid} {action.grace_seconds}"
            )
        case Patch():
            return f"patch {action.resource.plural} {action.name} {action.uid} {action.patch}"


def incident() -> Diary:
    world = Diary(pytorch(workers=2, run_policy={"backoffLimit": 1}))
    world.running()
    world.exit("1", 137, reason="OOMKilled").settle().advance(10).settle().run().settle()
    world.advance(700).exit("0", 1, message="Traceback\n\nValueError: x").settle()
    return world


def survivors() -> Diary:
    world = Diary(torchrun(workers=3))
    world.running()
    world.exit("2", 137).settle().advance(10).settle().exit("1", 1).settle().advance(1).settle()
    world.run().settle().advance(30).exit("1", 1).settle().advance(60).settle().run().settle()
    return world


def resizing() -> Diary:
    world = Diary(elastic(1, 1, 3))
    world.running()
    for size in (3, 2):
        world.advance(5)
        world.job["spec"]["elastic"]["expectedReplicas"] = size
        world.settle().run("1").settle()
    world.exit("1", 1).settle().run().settle()
    world.advance(100).exit("1", 3).settle().advance(10).settle().run().settle()
    return world


def pausing() -> Diary:
    world = Diary(pytorch(workers=1, scheduler={"t9kScheduler": {"queue": "q"}}))
    world.running()
    world.advance(5)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle().advance(5)
    world.job["spec"]["runMode"] = {}
    world.settle().run().settle()
    world.advance(5).exit("0", 0).settle()
    return world


def rules() -> Diary:
    world = Diary(
        generic(
            workers=3,
            limit=1,
            successRules=[{"worker": [0]}],
            failureRules=[{"worker": [1, 2]}],
            cleanUpPolicy="Unfinished",
        )
    )
    world.running()
    world.advance(1).exit("1", 2).settle().advance(10).settle().run().settle()
    world.exit("1", 2, message="no data").settle().remove("1").settle()
    world.advance(5).exit("2", 3).settle().advance(10).settle().run().settle()
    world.exit("2", 3).settle()
    return world


def always() -> Diary:
    world = Diary(generic(workers=2, policy="Always", limit=1))
    world.running()
    world.exit("0", 0).settle().advance(10).settle().run().settle().exit("0", 0).settle()
    world.exit("1", 1).settle().advance(10).settle().run().settle().exit("1", 0).settle()
    return world


def always_together() -> Diary:
    world = Diary(pytorch(workers=3, policy="Always", run_policy={"backoffLimit": 2}))
    world.running()
    world.advance(3).exit("1", 0).exit("2", 0).settle().advance(10).settle().run().settle()
    world.exit("1", 0).settle().exit("2", 5).settle()
    return world


def deadline() -> Diary:
    world = Diary(pytorch(workers=1, run_policy={"activeDeadlineSeconds": 60}))
    world.running()
    world.advance(20).settle().advance(40).settle()
    return world


def expiring() -> Diary:
    policy = {"ttlSecondsAfterFinished": 9, "cleanUpPolicy": "All"}
    world = Diary(pytorch(workers=1, run_policy=policy))
    world.running()
    world.exit("0", 0).settle().advance(9).step()
    return world


def taken() -> Diary:
    world = Diary(pytorch(workers=2))
    world.running()
    world.evict("1").settle().run().settle()
    world.advance(5).remove("0").settle().advance(20).settle().run().settle()
    world.advance(5).take(world.name("0"))
    world.pods[world.name("0")]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
    world.step()
    world.advance(330).step()
    return world


def for_good() -> Diary:
    world = Diary(elastic(2, 3, 3, policy="Never"))
    world.running()
    world.exit("2", 9, message="bad node").settle().remove("2").settle()
    world.advance(5).exit("1", 9).settle()
    return world


def troubles() -> Diary:
    world = Diary(generic(workers=1, service={"ports": [{"port": 80}]}))
    world.conflicts = (Conflict(SERVICES, "train-worker-0", "Service default/train-worker-0"),)
    world.refusals = (Refusal(PODS, world.name("0"), 403, "exceeded quota", world.now, 2),)
    world.settle()
    world.conflicts = ()
    world.settle().advance(2).settle()
    world.refusals = ()
    world.settle().run().settle()
    return world


def limits() -> Diary:
    world = Diary(pytorch(workers=1, elastic={"enabled": True}))
    world.running()
    world.job["spec"]["runPolicy"] = {"backoffLimit": 9}
    world.settle()
    world.pods[world.name("0")]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "QueueMaxDuration"}
    ]
    world.take(world.name("0")).settle()
    return world


LIVES: list[Callable[[], Diary]] = [
    incident,
    survivors,
    resizing,
    pausing,
    rules,
    always,
    always_together,
    deadline,
    expiring,
    taken,
    for_good,
    troubles,
    limits,
]


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_life_is_as_recorded(life: Callable[[], Diary]) -> None:
    pages = json.loads(json.dumps(life().pages))
    path = GOLDEN / f"{life.__name__}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(pages, sort_keys=False, width=100))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is built
    assert pages == yaml.load(path.read_text(), loader)
