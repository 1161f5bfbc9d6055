"""`activeDeadlineSeconds`: the clock starts when the job first leaves Pending.

Waiting in a queue does not count. Pause stops the clock, and resuming starts it anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainyard.kinds.shared.workload import Workload


def due(workload: Workload, started: datetime | None) -> datetime | None:
    """When the job must end; None without a deadline, or before the clock has started."""
    if workload.active_deadline_seconds is None or started is None:
        return None
    return started + timedelta(seconds=workload.active_deadline_seconds)


def message(workload: Workload) -> str:
    """What the Failed condition tells."""
    return (
        f"{workload.kind} {workload.name} has failed: it was active longer than "
        f"activeDeadlineSeconds ({workload.active_deadline_seconds}) allows."
    )
