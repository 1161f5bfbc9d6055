"""Which transitions a change of a job's status shows: accepted, started, ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from trainyard.kinds.shared.reasons import ConditionType, Phase
from trainyard.kube.object_conditions import find_condition
from trainyard.lifecycle.internal_status import final_phase
from trainyard.schema.times import parse


class JobEnd(NamedTuple):
    """How a job ended; `seconds` since it started, or None if it never did."""

    outcome: str
    reason: str
    message: str
    seconds: float | None


class StatusTransitions(NamedTuple):
    """The transitions between two statuses of a job."""

    is_new: bool = False
    """The job has its first status."""
    started_seconds: float | None = None
    """Seconds from the job's creation until all replicas ran for the first time. None for a job
    that was ever paused: it waited for a user and not for the cluster."""
    end: JobEnd | None = None


def status_transitions(
    created: datetime | None, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> StatusTransitions:
    """Compare `after` with `before`, the status that it replaces."""
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
    if find_condition(after, ConditionType.PAUSED):
        return None
    runs = find_condition(after, ConditionType.RUNNING).get("status") == "True"
    if not runs and final_phase(after) != Phase.SUCCEEDED:  # it failed before all replicas ran
        return None
    return max(0.0, (started - created).total_seconds())


def _end(status: Mapping[str, Any], now: datetime) -> JobEnd:
    started = parse(status.get("startTime"))
    ended = parse(status.get("completionTime")) or now
    seconds = None if started is None else max(0.0, (ended - started).total_seconds())
    phase = final_phase(status)
    condition = find_condition(status, ConditionType.FAILED) if phase == Phase.FAILED else {}
    return JobEnd(
        phase, str(condition.get("reason", "")), str(condition.get("message", "")), seconds
    )
