"""Where the wall time of a job goes (decision 231)."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, generic, pytorch
from trainyard.kinds.shared.goodput.goodput_parts import GoodputPart
from trainyard.lifecycle.pod_reports import Checkpoint, PodReports, ProcessWork, Progress
from trainyard.schema.times import parse, render

PARTS = [part.value for part in GoodputPart]


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
    assert spent(world) == {"starting": 5, "unknown": 150, "restarting": 23}
    first, second = attempts(world)
    assert first == {"number": 1, "starting": 5, "unknown": 100}
    assert second == {"number": 2, "restarting": 23, "unknown": 50}
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
    assert spent(world) == {"queued": 30, "unknown": 10, "paused": 60, "starting": 4}


def test_sums_outlive_the_attempts_that_are_told() -> None:
    world = World(pytorch(workers=1, run_policy={"backoffLimit": 99})).running()
    for _ in range(15):
        world.advance(10).exit("0", 137).settle().advance(400).settle().run().settle()
    assert spent(world) == {"unknown": 150, "restarting": 6000}
    assert [each["number"] for each in attempts(world)] == list(range(7, 17))


def test_time_is_counted_from_the_creation() -> None:
    world = World(pytorch(workers=1)).advance(7).running()
    assert spent(world) == {"starting": 7}


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    world = World(pytorch(workers=1)).running().advance(50)
    world.exit("0", 137).settle().advance(-40).settle()
    world.advance(500).settle().run().settle().advance(10).exit("0", 0).settle()
    assert world.status is not None
    assert spent(world)["unknown"] == 60
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
    world.reports = PodReports(progress=Progress(world.now, step=step, checkpoint=made, rate=rate))
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


def test_what_is_not_known_to_be_training_is_called_unknown() -> None:
    """Imports and the rendezvous, until the first step; in each attempt anew."""
    world = World(pytorch(workers=1)).settle().advance(5).run().settle().advance(10).settle()
    assert world.status is not None
    assert world.status["goodput"]["state"] == "unknown"
    process = Process(world, 0).train(3, 3).tell()
    assert spent(world) == {"starting": 15, "training": 3, "lost": 0}
    assert world.status["goodput"]["state"] == "training"
    again(world)
    assert world.status["goodput"]["state"] == "unknown"
    world.advance(30).exit("0", 3).settle().advance(400).settle()
    assert spent(world)["unknown"] == 35, "an attempt without a step may have trained"
    assert process.step == 3


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


_numbers = itertools.count()


class Process:
    """One that tells its own times; the world moves by what it does."""

    def __init__(self, world: World, first: int, replica: str = "0") -> None:
        self.world, self.began, self.replica = world, world.now, replica
        self.first = self.step = first
        self.seconds, self.saving = 0.0, 0.0
        self.saved: tuple[int, float] | None = None
        self._run = f"run {next(_numbers)}"

    def train(self, steps: int, seconds: float) -> Process:
        """Do steps, that take so long together."""
        self.world.advance(seconds)
        self.step += steps
        self.seconds = self._passed()
        return self

    def save(self, seconds: float) -> Process:
        """Write a checkpoint."""
        self.world.advance(seconds)
        self.saving += seconds
        self.saved = (self.step, self._passed())
        return self

    def tell(self, late: float = 0.0) -> Process:
        """Be heard, so long after it has sent it."""
        world = self.world
        work = ProcessWork(
            run=self._run,
            began=self.began + timedelta(seconds=late),
            first=self.first,
            seconds=self.seconds,
            saved=self.saved,
            saving=self.saving,
        )
        progress = Progress(world.now, replica=self.replica, step=self.step, work=work)
        world.reports = PodReports(progress=progress)
        world.settle()
        return self

    def _passed(self) -> float:
        return (self.world.now - self.began).total_seconds()


def again(world: World, code: int = 137) -> World:
    """A replica fails, and its job starts anew, which takes a while."""
    return world.exit("0", code).settle().advance(20).settle().run().settle().advance(5)


def test_a_process_that_tells_its_own_times_is_heard_late() -> None:
    world = World(pytorch(workers=1)).settle().advance(5).run().settle().advance(4)
    first = Process(world, 0)
    first.train(10, 10).save(3).train(7, 7).tell()
    assert spent(world) == {"starting": 9, "training": 17, "saving": 3, "lost": 0}
    again(world.advance(2))
    Process(world, 10).train(5, 5).tell()
    assert spent(world) == {
        "starting": 9,
        "training": 15,
        "saving": 3,
        "lost": 9,
        "restarting": 25,
    }


def test_a_checkpoint_that_was_not_told_is_known_by_where_it_goes_on() -> None:
    world = World(pytorch(workers=1)).settle().run().settle()
    Process(world, 0).train(10, 20).save(1).train(10, 20).tell()
    again(world.advance(20))  # ten steps more
    Process(world, 30).tell()
    assert spent(world)["lost"] == pytest.approx(20 - 20.5, abs=0.5)
    world = World(pytorch(workers=1)).settle().run().settle()
    Process(world, 0).train(10, 20).save(1).train(10, 20).tell()
    again(world)
    Process(world, 5).tell()  # the checkpoint could not be read, and an older one was there
    assert spent(world)["lost"] == pytest.approx(41 - 10.5)


def test_a_report_that_was_long_under_way_is_put_right_by_the_next() -> None:
    world = World(pytorch(workers=1)).settle().run().settle().advance(10)
    process = Process(world, 0).train(0, 4).tell(late=3)
    assert spent(world) == {"starting": 13, "training": 1, "lost": 0}
    process.train(6, 16).tell()
    assert spent(world) == {"starting": 10, "training": 20, "lost": 0}
    again(world)
    process = Process(world, 6).train(0, 4).tell(late=3)
    assert spent(world)["restarting"] == 28
    process.train(0, 10).tell()
    assert spent(world)["restarting"] == 25


def test_steps_before_all_are_seen_to_run_are_training() -> None:
    world = World(pytorch(workers=1)).settle().advance(5)
    process = Process(world, 0).train(3, 3)
    world.run().settle()
    process.tell()
    assert spent(world) == {"starting": 5, "training": 3, "lost": 0}


def test_a_program_that_is_started_again_in_its_pod_has_lost_its_work() -> None:
    world = World(pytorch(workers=1)).settle().run().settle()
    Process(world, 0).train(10, 10).save(2).train(5, 5).tell()
    world.advance(6)
    Process(world, 10).train(4, 14).tell()
    assert spent(world) == {"training": 24, "saving": 2, "lost": 11}
    assert len(attempts(world)) == 1


def test_who_reports_beside_the_first_changes_nothing() -> None:
    world = World(generic(workers=2)).settle().run().settle()
    first, second = Process(world, 0, "0"), Process(world, 0, "1")
    for _ in range(4):
        first.train(1, 10).tell()
        second.train(2, 10).tell()
    assert spent(world) == {"training": 80, "lost": 0}


def test_a_replica_that_restarts_alone_goes_on_from_its_own_checkpoint() -> None:
    world = World(generic(workers=2, limit=5)).settle().run().settle()
    Process(world, 0).train(10, 10).save(2).train(5, 5).tell()
    world.exit("1", 3).settle().advance(20).settle().run().settle().advance(3)
    again(world)
    Process(world, 10).tell()
    found = spent(world)
    assert (found["training"], found["saving"]) == (10, 2)
    # Which of it was idle, nobody can tell by the attempts, that other replicas end as well.
    assert found["lost"] + found["restarting"] == 53


def test_an_end_that_is_learnt_of_late_ended_the_training_then() -> None:
    world = World(pytorch(workers=2)).running().advance(50)
    world.exit("0", 137).advance(8).settle().advance(10).settle().run().settle()
    assert spent(world) == {"unknown": 50, "restarting": 18}
    assert attempts(world)[1] == {"number": 2, "restarting": 18}


def test_an_account_of_an_earlier_version_is_no_trouble() -> None:
    world = World(pytorch(workers=1)).settle().run().settle()
    Process(world, 0).train(10, 10).tell()
    assert world.status is not None
    world.status["internal"]["work"] = {"attempt": 1, "from": 0, "at": render(world.now)}
    Process(world, 10).train(10, 10).tell()
    assert sum(spent(world).values()) == 20
