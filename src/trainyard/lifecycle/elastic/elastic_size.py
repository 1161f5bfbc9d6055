"""An elastic job changes its size: a new attempt that costs nothing.

Decision 30: the replicas that stay keep their pods, and the launcher takes the newcomers in. Types
shrink from their highest index, so that rank 0 is never removed. A job that grows gets back what it
had lost (decision 96).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared.workload import ReplicaKey, Scope, Workload
from trainyard.lifecycle.internal_status import RESIZED, InternalStatus, ReplicaRecord, attempt_end
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.replica_view import Replica, View, entries_of


def at_reported_size(workload: Workload, status: Mapping[str, Any]) -> Workload:
    """With the size that status tells: nothing follows from one that is changed after the end."""
    # Decision 27: terminal is final.
    reported = {task["type"]: len(task["replicas"]) for task in status.get("tasks") or ()}
    types = (replace(t, replicas=reported.get(t.name, t.replicas)) for t in workload.types)
    return replace(workload, types=tuple(types))


def resize(context: ReconcileContext) -> tuple[InternalStatus, frozenset[str]]:
    """What is remembered with the size wanted now, and the replicas that start anew for it."""
    workload, internal, view, now = context.workload, context.internal, context.view, context.now
    stale = [
        r.name
        for r in view.replicas
        if r.pod is not None and not r.ended and r.pod.revision != workload.revision(r.key)
    ]
    if internal.size is None:
        return replace(internal, size=workload.replicas), frozenset()
    if internal.size == workload.replicas and not stale:
        return internal, frozenset()
    # All cost nothing: they get another attempt without one being counted. What waits for its
    # restart is none of them, and goes on waiting (decision 95).
    newcomers = _newcomers(context)
    back = _given_up_replicas(context) if workload.replicas > internal.size else []
    anew = [*newcomers, *back, *stale]
    before = internal
    internal = internal.restart_some(anew, attempt_end(now, RESIZED), now)
    number = internal.attempt
    internal = internal.put({name: replace(before.record(name), attempt=number) for name in stale})
    internal = internal.put({name: ReplicaRecord(number, grown=True) for name in newcomers})
    wanted = {r.name for r in view.replicas}
    records = {name: record for name, record in internal.records.items() if name in wanted}
    internal = replace(internal, size=workload.replicas, resized_at=now, records=records)
    return internal, frozenset(anew)


def _newcomers(context: ReconcileContext) -> list[str]:
    """Replicas that the job did not want before; a pod of that name is of one that left.

    Those of its last size are none, told of or not: a first status tells of no replica, and what
    it tells may be erased.
    """
    known = set(entries_of(context.before))
    if context.workload.with_size is not None and context.internal.size is not None:
        known |= {
            name
            for _, _, name in context.workload.with_size(context.internal.size).replicas_by_rank
        }
    return [r.name for r in context.view.replicas if r.name not in known]


def _given_up_replicas(context: ReconcileContext) -> list[str]:
    """Replicas that failed for good, without which the job went on."""

    def is_given_up(r: Replica) -> bool:
        alone = context.workload.scope is Scope.REPLICA or r.type.restarts_alone
        has_failed = r.entry is not None and r.entry["phase"] == State.FAILED.value
        return context.internal.is_lost(r.name) or (alone and has_failed)

    return [r.name for r in context.view.replicas if is_given_up(r)]


def can_go_on_without(workload: Workload, view: View, lost: Collection[ReplicaKey]) -> bool:
    """Whether an elastic job has enough replicas left, rank 0 among them."""
    if workload.elastic is None or workload.deciding_replica in lost:
        return False
    left = sum(1 for r in view.replicas if r.state is not State.FAILED or r.key not in lost)
    return left >= workload.elastic.min_replicas


def is_dispensable(workload: Workload, internal: InternalStatus, replica: Replica) -> bool:
    """Whether an elastic job ends without this replica: it was lost, or does not run yet."""
    is_out = replica.state is State.CREATING or internal.is_lost(replica.name)
    return workload.elastic is not None and is_out


def is_running(workload: Workload, view: View) -> bool:
    """Whether the job runs: all replicas run or are done, or as many as an elastic job needs."""
    if workload.elastic is None:
        return all(r.ended for r in view.not_running)
    # Decision 30: it runs with what fits.
    away = [r for r in view.not_running if r.state is not State.SUCCEEDED]
    well = len(view.replicas) - len(away)
    without_rank0 = any(r.key == workload.deciding_replica for r in away)
    return well >= workload.elastic.min_replicas and not without_rank0


def settles_at(context: ReconcileContext, started: datetime | None) -> datetime | None:
    """When all replicas of the attempt have come up, which ends the incident before it.

    An elastic job may have fewer replicas than it wants for ever; it settles after a while.
    `started`: when the job first ran.
    """
    internal, elastic = context.internal, context.workload.elastic
    if all(r.ended or r.type.restarts_alone for r in context.view.not_running):
        return context.now
    if (
        elastic is None
        or internal.ready_at is not None
        or not is_running(context.workload, context.view)
    ):
        return None
    moments = [m for m in (internal.resized_at, internal.not_before, started) if m is not None]
    return max(moments, default=context.now) + timedelta(
        seconds=context.settings.resize_grace_seconds
    )


def has_recovered(context: ReconcileContext) -> bool:
    """Whether all replicas are back, or an elastic job has settled for those that are."""
    together = context.workload.scope is Scope.JOB and context.internal.ready_at is not None
    rest = context.view.not_running
    return all(r.ended or (together and not r.type.restarts_alone) for r in rest)
