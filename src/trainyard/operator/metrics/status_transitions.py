"""What of a job's life a change of its status tells: its beginning, its start, its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from trainyard.kinds.shared.reasons import ConditionType, Phase
from trainyard.lifecycle.ledger import final_phase
from trainyard.schema.times import parse


class JobEnd(NamedTuple):
    """How a job ended. `seconds`: since it started; None of one that never did."""

    outcome: str
    reason: str
    message: str
    seconds: float | None


class StatusTransitions(NamedTuple):
    """What is new in a status."""

    is_new: bool = False
    """The job was seen for the first time."""
    started_seconds: float | None = None
    """All replicas run for the first time, so long after the job was created. Not told of a job
    that was ever paused, which waited for somebody and not for the cluster."""
    end: JobEnd | None = None


def status_transitions(
    created: datetime | None, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> StatusTransitions:
    """What `after` tells that `before`, the status that it replaces, did not."""
    end = None
    if final_phase(after) and not final_phase(before):
        end = _end(after, now)
    return StatusTransitions(not before.get("phase"), _started(created, before, after), end)


def _started(
    created: datetime | None, before: Mapping[str, Any], after: Mapping[str, Any]
) -> float | None:
    started = parse(after.get("startTime"))
    if created is None or started is None or "startTime" in before:
        return None
    if _condition(after, ConditionType.PAUSED):
        return None
    runs = _condition(after, ConditionType.RUNNING).get("status") == "True"
    if not runs and final_phase(after) != Phase.SUCCEEDED:  # it failed before all of it ran
        return None
    return max(0.0, (started - created).total_seconds())


def _end(status: Mapping[str, Any], now: datetime) -> JobEnd:
    started = parse(status.get("startTime"))
    ended = parse(status.get("completionTime")) or now
    seconds = None if started is None else max(0.0, (ended - started).total_seconds())
    phase = final_phase(status)
    told = _condition(status, ConditionType.FAILED) if phase == Phase.FAILED else {}
    return JobEnd(phase, str(told.get("reason", "")), str(told.get("message", "")), seconds)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = (c for c in status.get("conditions") or () if c.get("type") == kind)
    return next(found, {})
