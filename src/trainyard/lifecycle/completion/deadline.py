"""`activeDeadlineSeconds`: the clock starts when the job first leaves Pending (decision 28).

Waiting in a queue does not count. Pause stops the clock, and resuming starts it anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle import texts
from trainyard.lifecycle.policy import PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import parse


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Ends a job whose time is over; until then, wakes at its deadline."""
    due = _deadline_of(context.workload, parse(status.fields.get("startTime")))
    if due is not None and context.now >= due:
        return PolicyResult(verdict=deadline_verdict(context.workload))
    return PolicyResult(wake_at=due)


def _deadline_of(workload: Workload, started: datetime | None) -> datetime | None:
    """When the job must end; None without a deadline, or before the clock has started."""
    if workload.active_deadline_seconds is None or started is None:
        return None
    return started + timedelta(seconds=workload.active_deadline_seconds)


def deadline_verdict(workload: Workload) -> Verdict:
    """The end of a job whose time is over."""
    return Verdict(False, ConditionReason.DEADLINE_EXCEEDED, texts.overdue(workload))
