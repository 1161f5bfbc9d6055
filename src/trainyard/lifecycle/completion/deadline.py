"""`activeDeadlineSeconds`: the clock starts when the job first leaves Pending (decision 28).

Waiting in a queue does not count. Pause stops the clock, and resuming starts it anew.
"""

from __future__ import annotations

from datetime import timedelta

from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.lifecycle import texts
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import parse


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Ends a job whose time is over; until then, wakes at its deadline."""
    workload, started = context.workload, parse(status.fields.get("startTime"))
    if workload.active_deadline_seconds is None or started is None:
        return NOTHING
    due = started + timedelta(seconds=workload.active_deadline_seconds)
    if context.now < due:
        return PolicyResult(wake_at=due)
    message = texts.overdue(workload)
    return PolicyResult(verdict=Verdict(False, ConditionReason.DEADLINE_EXCEEDED, message))
