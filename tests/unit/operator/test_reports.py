"""What becomes of what ranks tell of their arrivals, in the controller that hears it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.operator.reports import Reports

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WRONG = 5000.0
"""By how much the clock of the second machine is wrong."""


def arrived(rank: int, steps: int, late: float) -> dict[str, Any]:
    """A report of a rank on a machine of its own, a second after its last step."""
    now = BEGAN.timestamp() + steps + 1
    listed = [[n, 1e3 * (steps + 1 - n - late), 1e3] for n in range(2, steps + 1)]
    told = {"rank": rank, "size": 2, "attempt": 1, "kind": "Collecting", "every": 30}
    clock = {"machine": f"m{rank}", "now": now + WRONG * rank}
    return {"observation": {**told, **clock, "arrivals": [["0", listed]]}}


async def test_passes_are_called_for_once_a_rank_is_late_and_no_more_after_that() -> None:
    woken: list[str] = []
    now = BEGAN
    reports = Reports(lambda: now, woken.append, 0.0)

    async def step(steps: int, late: float) -> list[int] | None:
        nonlocal now
        now = BEGAN + timedelta(seconds=steps + 1.01)
        for rank in (0, 1):
            reports.hear("u", f"p{rank}", arrived(rank, steps, late * rank))
        await asyncio.sleep(0.01)
        found = reports.of("u").late
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
    assert not any(rank.arrivals for rank in reports.of("u").ranks)


async def test_nobody_is_judged_more_often_than_passes_may_be_called_for() -> None:
    now = BEGAN + timedelta(seconds=31)
    reports = Reports(lambda: now, lambda _: None, 1e6)
    for rank in (0, 1):
        reports.hear("u", f"p{rank}", arrived(rank, 30, 0.3 * rank))
    assert reports.of("u").late is None
