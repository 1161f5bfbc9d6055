"""Whoever may write a status may leave out any part of it: that ends no pass (decision 105)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, colossalai, deepspeed, elastic, generic, pytorch
from trainyard.lifecycle import plan

Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of all fields and elements."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def without(status: dict[str, Any], path: Path) -> dict[str, Any]:
    left: Any = copy.deepcopy(status)
    inner = left
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return dict(left)


def running(make: Callable[[], dict[str, Any]]) -> World:
    """A job that has failed once, and runs again."""
    world = World(make()).running()
    world.advance(30).exit("0", 3).settle().advance(60).settle().run().settle()
    assert world.phase == "Running"
    return world


def fails(world: World) -> None:
    world.exit("0", 3)


def is_gone(world: World) -> None:
    world.pods.clear()


def succeeds(world: World) -> None:
    for name in world.pods:
        world.exit(name.removeprefix(f"{world.workload.base}-"), 0)


def is_paused(world: World) -> None:
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}


def resumes(world: World) -> None:
    is_paused(world)
    world.settle()
    del world.job["spec"]["runMode"]


def grows(world: World) -> None:
    world.job["spec"]["elastic"]["expectedReplicas"] = 3


def has_ended(world: World) -> None:
    succeeds(world)
    world.settle()
    assert world.phase in ("Succeeded", "Failed")


def nothing_happens(_: World) -> None:
    pass


BUDGET = {"backoffLimit": 3}
JOBS: dict[str, Callable[[], dict[str, Any]]] = {
    "pytorch": lambda: pytorch(workers=2, run_policy=BUDGET),
    "elastic": lambda: elastic(1, 2, 4, run_policy=BUDGET),
    "deepspeed": lambda: deepspeed(workers=2, run_policy=BUDGET),
    "colossalai": lambda: colossalai(workers=2, limit=3),
    "generic": lambda: generic(workers=2, limit=3),
}
CHANGES = (nothing_happens, fails, is_gone, succeeds, is_paused, resumes, has_ended)


@pytest.mark.parametrize(
    ("kind", "happens"),
    [(kind, happens) for kind in JOBS for happens in (*CHANGES, *(grows,) * (kind == "elastic"))],
)
def test_a_part_that_is_missing_ends_no_pass(kind: str, happens: Callable[[World], None]) -> None:
    world = running(JOBS[kind])
    happens(world)
    status, observed = world.status, world.observed()
    assert status is not None
    broken = {}
    for path in paths(status):
        left: dict[str, Any] | None = without(status, path)
        try:
            for _ in range(3):
                made = plan(world.workload, left, observed, world.now, world.settings)
                left = made.status or left
        except Exception as error:
            broken[path] = repr(error)
    assert not broken


def test_an_elastic_job_whose_replicas_were_erased_grows_by_newcomers_only() -> None:
    world = World(elastic(1, 2, 4)).running()
    assert world.status is not None
    del world.status["tasks"]
    grows(world)
    world.settle()
    assert [world.attempt_of(str(n)) for n in range(3)] == ["1", "1", "2"]
