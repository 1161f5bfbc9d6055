"""What jobs tell of their progress, as the status has it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import SETTINGS, World, pytorch
from trainyard.lifecycle import plan
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.pod_reports import Checkpoint, CollectiveCounts, PodReports, Progress

EVERY = SETTINGS.progress_seconds


def running() -> World:
    """A job that runs and has told nothing."""
    world = World(pytorch(workers=2)).running()
    assert world.status["phase"] == "Running"
    assert "progress" not in world.status
    return world


def plan_with(world: World, progress: Progress, now: datetime | None = None) -> Plan:
    """The plan of a pass that has heard this."""
    observed = replace(world.observed(), reports=PodReports(progress))
    moment = now or world.now
    return plan(world.workload, world.status, observed, moment, SETTINGS)


def progress_after(world: World, progress: Progress) -> dict[str, Any]:
    """The progress that a pass writes, which is stored."""
    made = plan_with(world, progress)
    assert made.status is not None
    assert not made.actions, "it changes nothing of what happens"
    assert not made.events
    world.status = made.status
    found: dict[str, Any] = made.status["progress"]
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"step": 1200, "total": 10000, "rate": 3.125},
            "step 1,200/10,000, 3.12 it/s, 47 min left",
        ),
        ({"step": 1200, "rate": 0.25}, "step 1,200, 4 s/it"),
        ({"step": 7, "total": 10, "remaining": 59}, "step 7/10, 59 s left"),
        ({"step": 7, "total": 10, "remaining": 26_000}, "step 7/10, 7 h left"),
        ({"step": 7, "total": 10, "remaining": 400_000}, "step 7/10, 5 days left"),
        ({"percentage": 45, "remaining": 0}, "45 %, 0 s left"),
        ({"percentage": 0, "total": 200}, "step 0/200"),
        ({"percentage": 100, "total": 200, "rate": 3.0}, "step 200/200"),
        ({"epoch": 1.5}, "epoch 1.5"),
        ({"metrics": (("loss", "1"),)}, ""),
    ],
)
def test_it_is_told_in_a_line(given: dict[str, Any], message: str) -> None:
    world = running()
    assert progress_after(world, Progress(world.now, "p", **given))["message"] == message


def test_what_a_report_leaves_out_stays() -> None:
    world = running()
    made = Checkpoint("/out/1", world.now, 100)
    metrics = (("loss", "0.5"),)
    progress_after(world, Progress(world.now, "p", 100, 1000, metrics=metrics, checkpoint=made))
    world.now += timedelta(seconds=EVERY + 1)
    found = progress_after(world, Progress(world.now, "p", 200))
    assert (found["step"], found["totalSteps"], found["percentage"]) == (200, 1000, 20)
    assert found["metrics"] == [{"name": "loss", "value": "0.5"}]
    assert found["checkpoint"]["path"] == "/out/1"


def test_it_is_not_written_too_often_for_its_own_sake() -> None:
    world = running()
    progress_after(world, Progress(world.now, "p", 1))
    first = world.now
    later = first + timedelta(seconds=EVERY / 2)
    made = plan_with(world, Progress(later, "p", 2), later)
    assert made.status is None
    assert made.wake_at == first + timedelta(seconds=EVERY)
    made = plan_with(world, Progress(later, "p", 2), first + timedelta(seconds=EVERY))
    assert made.status is not None
    assert made.status["progress"]["step"] == 2


def test_another_write_takes_it_along() -> None:
    world = running()
    progress_after(world, Progress(world.now, "p", 1))
    world.now += timedelta(seconds=EVERY / 2)
    world.exit("worker-1", 1)
    made = plan_with(world, Progress(world.now, "p", 2))
    assert made.status is not None
    assert made.status["progress"]["step"] == 2


def test_what_was_heard_before_is_not_told_again() -> None:
    world = running()
    progress_after(world, Progress(world.now, "p", 5))
    late = world.now + timedelta(hours=1)
    assert plan_with(world, Progress(world.now - timedelta(seconds=1), "p", 4), late).status is None


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    world = running()
    progress_after(world, Progress(world.now, "p", 5))
    world.now -= timedelta(hours=1)
    assert progress_after(world, Progress(world.now, "p", 6))["step"] == 6


def test_the_last_word_comes_with_the_end_and_none_after_it() -> None:
    world = running()
    progress_after(world, Progress(world.now, "p", 5, 10, rate=1.0))
    world.now += timedelta(seconds=1)
    world.exit("worker-0", 0)
    made = plan_with(world, Progress(world.now, "p", 10, 10, rate=1.0))
    assert made.status is not None
    assert made.status["phase"] == "Succeeded"
    assert made.status["progress"]["message"] == "step 10/10"
    world.status = made.status
    world.now += timedelta(days=1)
    assert plan_with(world, Progress(world.now, "p", 11, 11)).status is None


@pytest.mark.parametrize(
    "odd",
    [
        *("x", 5, [], {}, {"lastReportTime": "soon"}, {"lastReportTime": 3}),
        {"lastReportTime": "2026-01-01T00:00:00Z", "collectives": 7},
        {"lastReportTime": "2026-01-01T00:00:00Z", "collectives": {"perSecond": 7}},
    ],
)
def test_what_others_wrote_there_is_no_hindrance(odd: Any) -> None:
    world = running()
    world.status = {**world.status, "progress": odd}
    assert progress_after(world, Progress(world.now, "p", 5))["step"] == 5


def test_it_is_told_where_the_step_was_read_until_the_program_tells_it() -> None:
    world = running()
    read = Progress(world.now, "p", step=5, source="TensorBoard")
    assert progress_after(world, read)["source"] == "TensorBoard"
    world.now += timedelta(seconds=2 * EVERY)
    assert "source" not in progress_after(world, Progress(world.now, "p", step=6))


def counted(
    world: World, heard: CollectiveCounts, progress: Progress | None = None
) -> dict[str, Any]:
    """The progress that a pass writes, a while after the one before."""
    world.now += timedelta(seconds=EVERY + 1)
    progress = progress and replace(progress, at=world.now)
    both = PodReports(progress, collectives=replace(heard, at=world.now))
    observed = replace(world.observed(), reports=both)
    made = plan(world.workload, world.status, observed, world.now, SETTINGS)
    world.status = made.status or world.status
    found: dict[str, Any] = world.status["progress"]
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 1240}, "1,240 collectives"),
        (
            {"count": 1240, "rate": 12.42, "cadence": (4, 0.322)},
            "1,240 collectives, 12.4 a second, the same 4 every 0.322 s",
        ),
        ({"count": 7, "rate": 0.1}, "7 collectives, 0.1 a second"),
        ({"count": 1240, "rate": 0.0, "cadence": (4, 0.322)}, "1,240 collectives, 0 a second"),
    ],
)
def test_of_one_that_tells_nothing_its_collectives_are_told(
    given: dict[str, Any], message: str
) -> None:
    world = running()
    found = counted(world, CollectiveCounts(world.now, "p", **given))
    assert (found["message"], found["source"], found["replica"]) == (message, "Collectives", "p")
    assert not found.keys() & {"step", "percentage", "remainingSeconds", "stepsPerSecond"}


def test_whatever_says_how_far_it_is_goes_before_its_collectives() -> None:
    world = running()
    many = CollectiveCounts(world.now, "p", 100, 1.0)
    counted(world, many)
    found = counted(world, many, Progress(world.now, "p", metrics=(("loss", "1"),)))
    assert found["source"] == "Collectives"
    assert found["metrics"] == [{"name": "loss", "value": "1"}]
    read = counted(world, many, Progress(world.now, "p", step=5, source="TensorBoard"))
    assert (read["message"], read["source"]) == ("step 5", "TensorBoard")
    assert "collectives" not in read
    # A controller that has just taken over has not heard of steps yet.
    assert counted(world, many) == read


def test_of_one_that_has_ended_it_is_told_how_many_there_were() -> None:
    world = running()
    counted(world, CollectiveCounts(world.now, "p", 100, 1.0, (2, 2.0)))
    world.exit("worker-0", 0)
    assert (
        counted(world, CollectiveCounts(world.now, "p", 120, 1.0))["message"] == "120 collectives"
    )
