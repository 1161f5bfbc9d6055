"""Pause keeps the job and deletes its pods; resuming starts them again, at no cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainyard.kinds.shared.workload import Scope, Workload
from trainyard.lifecycle.ledger import Ledger, Record, ending
from trainyard.lifecycle.replicas import View

PAUSED = "The job is paused: its pods are deleted."
RESUMED = "The job has been resumed."
REASON = "Paused"
"""Reason of the end of an attempt."""


def begin(ledger: Ledger, now: datetime) -> Ledger:
    """From now on the job has no pods; the attempt that was under way is over."""
    return replace(ledger.close(ending(now, REASON)), paused=True, ready_at=None)


def end(
    workload: Workload, ledger: Ledger, view: View, now: datetime
) -> tuple[Ledger, frozenset[str]]:
    """A new attempt, and the names of the replicas that it starts.

    Replicas that restart one by one keep their ends; others start together, even those that
    were lost.
    """
    ledger = replace(ledger, paused=False, resumed=True, failures=0)
    if not ledger.attempts:
        return ledger.begin(now), frozenset(r.name for r in view.replicas)
    if workload.scope is Scope.JOB:
        ledger = replace(ledger, records={}, size=_size(workload, ledger)).restart_all({}, now)
        return ledger, frozenset(r.name for r in view.replicas)
    again = {r.name: r for r in view.replicas if not r.ended}
    records = dict(ledger.records)
    for name in again:
        record = records.get(name) or Record(ledger.floor)
        records[name] = Record(record.attempt + 1, record.restarts)
    number = max([ledger.attempts[-1]["number"], *(records[name].attempt for name in again)])
    ledger = replace(ledger, records=records, not_before=None).open(number, now)
    return ledger, frozenset(again)


def _size(workload: Workload, ledger: Ledger) -> int | None:
    """A size that changed during the pause needs no resizing."""
    return workload.replicas if workload.elastic is not None else ledger.size
