"""Keeps what lasts apart from steps of the wall clock.

A job's status has the moments from which deadlines and delays are counted, by the wall clock. Where
that is set, or a laptop slept, the moments known here are moved by as much, so that what is left of
each stays as it was. Moments that are told alone stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.runtime_context import STEP_SECONDS
from trainyard.schema.times import is_time, parse, render

_RUNNING = "attempts[-1]"
_TOLD_ALONE = ("conditions", "progress", "stragglers", "attempts")
"""Fields from whose moments nothing is counted; of the attempts only the one that runs counts."""


class ClockSteps:
    """Steps of the wall clock since each job was first seen by this controller."""

    def __init__(self, offset: Callable[[], float]) -> None:
        """`offset`: by how many seconds the wall clock is ahead of one that only goes on."""
        self._offset = offset
        self._offsets: dict[str, float] = {}
        self._moved: dict[str, dict[str, str]] = {}
        """By job, the moments before and after steps; the stored ones may be either."""

    def adjusted(self, job: JobRecord) -> JobRecord:
        """The job with the moments in its status as they are by the present clock."""
        offset = self._offset()
        step = offset - self._offsets.setdefault(job.uid, offset)
        moved = self._moved.get(job.uid, {})
        if job.status is None or (abs(step) < STEP_SECONDS and not moved):
            return job
        if abs(step) >= STEP_SECONDS:
            self._offsets[job.uid] = offset
            for text in set(_moments(_counted(job.status))) - moved.keys():
                moved[text] = text
            for old, new in moved.items():
                moment = parse(new)
                assert moment is not None
                moved[old] = render(moment + timedelta(seconds=step))
            self._moved[job.uid] = moved
        counted = _replaced(_counted(job.status), moved)
        if (running := counted.pop(_RUNNING, None)) is not None:
            counted["attempts"] = [*job.status["attempts"][:-1], running]
        return replace(job, raw={**job.raw, "status": {**job.status, **counted}})

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._offsets.pop(uid, None)
        self._moved.pop(uid, None)


def _counted(status: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with moments from which something is counted, and the attempt that runs."""
    counted = {name: value for name, value in status.items() if name not in _TOLD_ALONE}
    attempts = status.get("attempts")
    if isinstance(attempts, list) and attempts and "endTime" not in attempts[-1]:
        counted[_RUNNING] = attempts[-1]
    return counted


def _moments(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if is_time(value) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _moments(each)]


def _replaced(value: Any, moved: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(each, moved) for name, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, moved) for each in value]
    return moved.get(value, value) if isinstance(value, str) else value
