"""Pause keeps the job and deletes its pods; resuming starts them again, at no cost (decision 29).

So does a queue that takes back the admission of a job, and admits it again (decision 171).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainyard.kinds.shared.workload import Scope
from trainyard.lifecycle.internal_status import (
    EVICTED,
    PAUSED,
    InternalStatus,
    ReplicaRecord,
    attempt_end,
)
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_view import Replica


def pause(internal: InternalStatus, now: datetime) -> InternalStatus:
    """From now on the job has no pods; the attempt that was under way is over."""
    return replace(
        internal.close(attempt_end(now, PAUSED)), paused=True, evicted=False, ready_at=None
    )


def evict(internal: InternalStatus, now: datetime) -> InternalStatus:
    """The same by a queue's will. A job that was paused until now has been resumed all the same."""
    resumed = internal.resumed or internal.paused
    if not internal.attempts:  # it has yet to start for the first time
        return replace(internal, paused=False, resumed=resumed).begin(now)
    evicted = replace(internal, paused=False, evicted=True, resumed=resumed)
    return replace(evicted.close(attempt_end(now, EVICTED)), ready_at=None)


def resume(context: ReconcileContext) -> tuple[InternalStatus, frozenset[str]]:
    """A new attempt, and the names of the replicas that it starts.

    Replicas that restart one by one keep their ends; others start together, even those that
    were lost (decision 30).
    """
    workload, now, replicas = context.workload, context.now, context.view.replicas
    before = context.internal
    resumed = before.resumed or before.paused
    internal = replace(
        before, paused=False, evicted=False, resumed=resumed, failures=0, repeat=None
    )
    if not internal.attempts:
        return internal.begin(now), frozenset(r.name for r in replicas)
    if workload.scope is Scope.JOB:
        # A size that changed during the pause needs no resizing.
        size = workload.replicas if workload.elastic is not None else internal.size
        # Records are dropped last: a replica that restarts alone may be ahead of the job's number.
        internal = replace(internal.restart_all({}, now), records={}, size=size)
        return internal, frozenset(r.name for r in replicas)
    again = [r.name for r in replicas if not r.ended or _was_taken(r)]
    records = dict(internal.records)
    for name in again:
        record = records.get(name) or ReplicaRecord(internal.floor)
        records[name] = ReplicaRecord(record.attempt + 1, record.restarts)
    number = max([internal.attempts[-1]["number"], *(records[name].attempt for name in again)])
    internal = replace(internal, records=records, not_before=None).open(number, now)
    return internal, frozenset(again)


def _was_taken(replica: Replica) -> bool:
    """Whether the cluster ended it, as it evicts a pod and leaves it there as failed."""
    end = replica.exit
    return end is not None and end.free and end.ruling is None
