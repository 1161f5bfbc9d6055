"""Where the wall time of a job goes (decision 231)."""

from __future__ import annotations

from typing import Any

from tests.unit.lifecycle.world import World, pytorch
from trainyard.kinds.shared.goodput import Part
from trainyard.lifecycle.heard import Checkpoint, Heard, Progress
from trainyard.schema.times import parse, render

PARTS = [part.value for part in Part]


def spent(world: World) -> dict[str, float]:
    """Seconds by part."""
    assert world.status is not None
    return {part: s for part, s in world.status["goodput"].items() if part in PARTS}


def attempts(world: World) -> list[dict[str, Any]]:
    assert world.status is not None
    return list(world.status["goodput"]["attempts"])


def test_each_second_goes_to_what_the_job_did_in_it() -> None:
    world = World(pytorch(workers=2)).settle()
    world.advance(5).run().settle().advance(100).exit("0", 3).settle()
    world.advance(20).settle().advance(3).run().settle().advance(50).exit("0", 0).settle()
    assert spent(world) == {"starting": 5, "training": 150, "restarting": 23}
    first, second = attempts(world)
    assert first == {"number": 1, "starting": 5, "training": 100}
    assert second == {"number": 2, "restarting": 23, "training": 50}
    assert world.status is not None
    assert "state" not in world.status["goodput"]


def test_it_is_written_with_what_is_written_anyway() -> None:
    world = World(pytorch(workers=2)).running()
    before = world.status
    assert world.advance(1000).step().status is None
    assert world.status == before


def test_time_in_a_pause_and_in_want_of_a_node_is_told() -> None:
    world = World(pytorch(workers=2)).settle()
    for pod in world.pods.values():
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"]["conditions"] = [{**condition, "message": "0/1 nodes"}]
    world.settle().advance(30).run().settle().advance(10)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle().advance(60)
    world.job["spec"]["runMode"] = {"pause": {"enabled": False}}
    world.settle().advance(4).run().settle()
    assert spent(world) == {"queued": 30, "training": 10, "paused": 60, "starting": 4}


def test_sums_outlive_the_attempts_that_are_told() -> None:
    world = World(pytorch(workers=1, run_policy={"backoffLimit": 99})).running()
    for _ in range(15):
        world.advance(10).exit("0", 137).settle().advance(400).settle().run().settle()
    assert spent(world) == {"training": 150, "restarting": 6000}
    assert [each["number"] for each in attempts(world)] == list(range(7, 17))


def test_time_is_counted_from_the_creation() -> None:
    job = pytorch(workers=1)
    world = World(job)
    job["metadata"]["creationTimestamp"] = render(world.now)
    world = World(job).advance(7).running()
    assert spent(world) == {"starting": 7}


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    world = World(pytorch(workers=1)).running().advance(50)
    world.exit("0", 137).settle().advance(-40).settle()
    world.advance(500).settle().run().settle().advance(10).exit("0", 0).settle()
    assert world.status is not None
    assert spent(world)["training"] == 60
    assert parse(world.status["goodput"]["asOf"]) == world.now


def test_what_was_never_accounted_for_begins_when_it_is_seen() -> None:
    """A status of an earlier version."""
    world = World(pytorch(workers=1)).running()
    assert world.status is not None
    del world.status["goodput"]
    world.advance(50).exit("0", 0).settle()
    assert sum(spent(world).values()) == 0


def tell(world: World, step: int, checkpoint: int | None = None, rate: float = 1.0) -> World:
    """The job says that it has done so many steps."""
    made = Checkpoint("/ckpt", world.now, checkpoint) if checkpoint is not None else None
    world.heard = Heard(progress=Progress(world.now, step=step, checkpoint=made, rate=rate))
    return world.settle()


def test_what_is_done_again_was_lost() -> None:
    world = World(pytorch(workers=1)).settle().advance(5).run().settle()
    tell(world.advance(10), 0)
    tell(world.advance(80), 80, 80)
    tell(world.advance(20), 100)
    world.exit("0", 137).settle().advance(20).settle().run().settle()
    tell(world.advance(10), 80)
    tell(world.advance(50), 130)
    world.exit("0", 0).settle()
    assert spent(world) == {"starting": 15, "training": 130, "lost": 20, "restarting": 30}
    assert attempts(world)[0] == {"number": 1, "starting": 15, "training": 80, "lost": 20}


def test_without_checkpoints_it_is_told_by_the_steps_that_are_done_again() -> None:
    world = World(pytorch(workers=1)).settle().run().settle()
    tell(world, 0)
    tell(world.advance(100), 100)
    world.exit("0", 137).settle().advance(20).settle().run().settle()
    tell(world, 70)
    world.exit("0", 137).settle().advance(20).settle().run().settle()
    tell(world.advance(5), 70)
    assert spent(world) == {"training": 70, "lost": 30, "restarting": 45}


def test_an_attempt_without_a_step_has_not_trained() -> None:
    world = World(pytorch(workers=1)).settle().run().settle()
    tell(world, 0)
    tell(world.advance(100), 100)
    for _ in range(2):
        world.exit("0", 137).settle().advance(20).settle().run().settle().advance(30)
    tell(world, 100)
    world.advance(10).exit("0", 0).settle()
    assert spent(world) == {"training": 110, "lost": 0, "restarting": 100}
