"""What becomes of what ranks tell of their arrivals, in the controller that hears it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.lifecycle import pod_reports
from trainyard.operator.channel.report_intake import ReportIntake
from trainyard.operator.channel.trainer_status import BadReport
from trainyard.payloads.observer import printed_progress, tensorboard_events

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WRONG = 5000.0
"""By how much the clock of the second machine is wrong."""


def arrived(rank: int, steps: int, late: float) -> dict[str, Any]:
    """A report of a rank on a machine of its own, a second after its last step."""
    now = BEGAN.timestamp() + steps + 1
    listed = [[n, 1e3 * (steps + 1 - n - late), 1e3] for n in range(2, steps + 1)]
    message = {"rank": rank, "size": 2, "attempt": 1, "kind": "Collecting", "every": 30}
    clock = {"machine": f"m{rank}", "now": now + WRONG * rank}
    return {"observation": {**message, **clock, "arrivals": [["0", listed]]}}


async def test_reconciles_are_called_for_once_a_rank_is_late_and_no_more_after_that() -> None:
    woken: list[str] = []
    now = BEGAN
    reports = ReportIntake(lambda: now, woken.append, 0.0)

    async def step(steps: int, late: float) -> list[int] | None:
        nonlocal now
        now = BEGAN + timedelta(seconds=steps + 1.01)
        for rank in (0, 1):
            reports.receive("u", f"p{rank}", arrived(rank, steps, late * rank))
        await asyncio.sleep(0.01)
        found = reports.reports_of("u").stragglers
        return None if found is None else [each.rank for each in found]

    assert await step(4, 0.3) is None
    await asyncio.sleep(0.01)
    woken.clear()
    assert await step(30, 0.3) == [1]
    assert woken == ["u"]
    assert await step(60, 0.3) == [1]
    assert woken == ["u"]
    assert await step(90, 0.0) == []
    assert woken == ["u", "u"]
    # What passes see is what it comes to.
    assert not any(rank.arrivals for rank in reports.reports_of("u").ranks)


async def test_a_pass_is_called_for_at_once_when_a_rank_is_late() -> None:
    """Other news may wait; thirty quick steps take no more than some seconds."""
    woken: list[str] = []
    now = BEGAN + timedelta(seconds=31.01)
    reports = ReportIntake(lambda: now, woken.append, 0.0)
    reports.receive("u", "p0", arrived(0, 30, 0.0))
    await asyncio.sleep(0.01)
    woken.clear()
    reports.receive("u", "p1", arrived(1, 30, 0.3))
    assert [each.rank for each in reports.reports_of("u").stragglers or ()] == [1]
    assert woken == ["u"]


async def test_nobody_is_judged_more_often_than_passes_may_be_called_for() -> None:
    now = BEGAN + timedelta(seconds=31)
    reports = ReportIntake(lambda: now, lambda _: None, 1e6)
    for rank in (0, 1):
        reports.receive("u", f"p{rank}", arrived(rank, 30, 0.3 * rank))
    assert reports.reports_of("u").stragglers is None


def status(step: int | None = None, source: str = "", **more: Any) -> dict[str, Any]:
    metrics = [] if step is None else [{"name": "current_step", "value": str(step)}]
    return {"trainerStatus": {"metrics": metrics, "source": source, **more}}


async def test_what_a_program_tells_itself_goes_before_what_is_read_of_its_files() -> None:
    reports = ReportIntake(lambda: BEGAN, lambda _: None, 1e6)

    def at(told: dict[str, Any]) -> tuple[int | None, str]:
        reports.receive("u", "p", told)
        found = reports.reports_of("u").progress
        assert found is not None
        return found.step, found.source

    assert at(status(7, "Output")) == (7, "Output")
    assert at(status(10, "TensorBoard")) == (10, "TensorBoard")
    assert at(status(8, "Output")) == (10, "TensorBoard")
    # Of a checkpoint nothing else is known.
    assert at(status(checkpoint={"path": "/out/1"})) == (10, "TensorBoard")
    assert at(status(20, "TensorBoard")) == (20, "TensorBoard")
    assert at(status(15)) == (15, "")
    assert at(status(30, "TensorBoard")) == (15, "")
    assert at(status(16)) == (16, "")
    with pytest.raises(BadReport, match="source: not TensorBoard or Output"):
        at(status(17, "nonsense"))


async def test_collectives_of_rank_0_are_counted_until_something_better_is_known() -> None:
    woken: list[str] = []
    reports = ReportIntake(lambda: BEGAN, woken.append, 0.0)

    async def told(count: int, rank: int = 0, **more: Any) -> tuple[int, float | None] | None:
        base = {"rank": rank, "size": 2, "attempt": 1, "kind": "Collecting", "pid": 7}
        half = [["0", count // 2, 0], ["1", count - count // 2, 0]]
        reports.receive("u", "p", {"observation": {**base, "counts": half, **more}})
        await asyncio.sleep(0.01)
        found = reports.reports_of("u").collectives
        return None if found is None else (found.count, found.rate)

    assert await told(40, rank=1) is None
    assert await told(0) is None
    woken.clear()
    count, rate = await told(10, cadence=[4, 0.3]) or (0, None)
    assert count == 10
    assert rate is not None
    assert rate > 0
    found = reports.reports_of("u").collectives
    assert found is not None
    assert found.cadence == (4, 0.3)
    assert woken == ["u"]
    assert await told(50, pid=8) == (50, None), "another process"
    assert await told(50, pid=8) == (50, 0.0)
    woken.clear()
    assert await told(50, pid=8) == (50, 0.0)
    assert woken == [], "there is nothing new"
    assert await told(3, pid=8) == (3, None), "its groups are others"
    reports.receive("u", "p", status(10, "TensorBoard"))
    await asyncio.sleep(0.01)
    woken.clear()
    assert await told(90, pid=8) == (3, None)
    assert woken == []


@pytest.mark.parametrize("wrong", [{}, "x", [1], [1, 2, 3], [-1, 1], [1, "x"], [1, None]])
async def test_a_cadence_has_two_numbers(wrong: object) -> None:
    reports = ReportIntake(lambda: BEGAN, lambda _: None, 0.0)
    with pytest.raises(BadReport, match="cadence"):
        reports.receive("u", "p", {"observation": {"kind": "Collecting", "cadence": wrong}})


async def test_one_that_never_met_counts_where_nobody_has() -> None:
    """A launcher, or what ran before the ranks, has their number too."""
    reports = ReportIntake(lambda: BEGAN, lambda _: None, 0.0)

    def heard() -> list[tuple[int, str]]:
        return [(rank.rank, rank.kind) for rank in reports.reports_of("u").ranks]

    def tell(kind: str, rank: int = 0, attempt: int = 1) -> None:
        message = {"rank": rank, "size": 2, "attempt": attempt, "kind": kind, "every": 30}
        reports.receive("u", f"p{rank}", {"observation": message})

    tell("Alone")
    assert heard() == [(0, "Alone")]
    tell("Collecting", 1)
    tell("Left")
    tell("Alone")
    assert heard() == [(0, "Left"), (1, "Collecting")]
    tell("Alone", attempt=2)
    assert heard() == [(0, "Alone"), (1, "Collecting")]


async def test_a_rank_that_two_pods_go_on_to_report_is_known() -> None:
    """Not one that a launcher has moved, whose process is another when it comes back."""
    reports = ReportIntake(lambda: BEGAN, lambda _: None, 0.0)

    def tell(pod: str, pid: int, kind: str = "Collecting") -> list[str]:
        message = {"rank": 0, "size": 2, "attempt": 1, "kind": kind, "every": 30, "pid": pid}
        reports.receive("u", pod, {"observation": message})
        return [rank.pod for rank in reports.reports_of("u").doubles or ()]

    assert tell("a", 1) == []
    assert tell("b", 2) == []
    assert tell("a", 3) == []
    assert tell("b", 2, "Left") == []
    assert tell("a", 3) == []
    assert tell("b", 4) == []
    assert tell("a", 3) == ["b", "a"]


def test_sources_of_progress_are_those_of_the_observers_programs() -> None:
    assert set(pod_reports.SOURCES) == {"", tensorboard_events.SOURCE, printed_progress.SOURCE}
    assert pod_reports.PRINTED == printed_progress.SOURCE
