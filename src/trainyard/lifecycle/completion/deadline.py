"""`activeDeadlineSeconds`: the clock starts when the job first leaves Pending (decision 28).

Waiting in a queue does not count. Pause stops the clock, and resuming starts it anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle import texts
from trainyard.lifecycle.completion.verdicts import Verdict


def deadline_of(workload: Workload, started: datetime | None) -> datetime | None:
    """When the job must end; None without a deadline, or before the clock has started."""
    if workload.active_deadline_seconds is None or started is None:
        return None
    return started + timedelta(seconds=workload.active_deadline_seconds)


def deadline_verdict(workload: Workload) -> Verdict:
    """The end of a job whose time is over."""
    return Verdict(False, ConditionReason.DEADLINE_EXCEEDED, texts.overdue(workload))
