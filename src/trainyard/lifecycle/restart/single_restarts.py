"""Scope Replica: each replica is restarted for itself, and pays for itself (decision 24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.lifecycle.internal_status import (
    COMPLETED,
    InternalStatus,
    ReplicaRecord,
    attempt_end,
)
from trainyard.lifecycle.last_seen import last_seen
from trainyard.lifecycle.reconcile_context import Incident, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica, end_order
from trainyard.lifecycle.restart import restart_backoff
from trainyard.lifecycle.restart.restart_policies import may_restart
from trainyard.schema.times import parse, render


def decide(context: ReconcileContext, ended: Sequence[Replica]) -> RestartDecision:
    """Decide on each that failed, or that has succeeded and is to run again."""
    records = dict(context.internal.records)
    internal = replace(
        context.internal, records=records
    )  # ours alone: a copy for each would add up
    incidents, failed = [], []
    for replica in sorted(ended, key=end_order):
        if may_restart(context, internal, replica):
            start, internal = _restart(context, internal, records, replica)
            incidents.append(Incident(replica, replica.exit or Exit(), 1, start))
        elif replica.state is not State.SUCCEEDED:
            failed.append(replica)
    restarted = frozenset(incident.cause.name for incident in incidents)
    return RestartDecision(internal, tuple(incidents), tuple(failed), restarted=restarted)


def _restart(
    context: ReconcileContext,
    internal: InternalStatus,
    records: dict[str, ReplicaRecord],
    replica: Replica,
) -> tuple[datetime, InternalStatus]:
    """When it starts anew, and the internal status; `records` are its own, and are changed."""
    end = replica.exit or Exit()
    record = records.get(replica.name) or ReplicaRecord(internal.floor)
    healthy_since = replica.pod.started if replica.pod else None
    failures = restart_backoff.count_failure_in_row(
        record.failures, healthy_since, context.now, context.settings
    )
    start = context.now + restart_backoff.restart_delay(failures, context.settings, free=end.free)
    counted = 0 if end.free else 1
    entry = finished_attempt(internal, replica, context.now) | last_seen(context, replica)
    alone = replica.type.restarts_alone
    internal = internal.note_beside(entry) if alone else internal.note(entry, start)
    records[replica.name] = ReplicaRecord(
        record.attempt + 1, record.restarts + counted, failures, start
    )
    if counted:
        internal = internal.count({replica.type.name: 1})
        if context.workload.shared_budget:
            internal = replace(internal, backoff=internal.backoff + 1)
    return start, internal


def finished_attempt(internal: InternalStatus, replica: Replica, now: datetime) -> dict[str, Any]:
    """The attempt that a single replica has ended, as `status.attempts` tells it."""
    end = replica.exit or Exit()
    reason = COMPLETED if end.code == 0 else end.reason or "Error"
    entry: dict[str, Any] = {"number": internal.wanted(replica.name)}
    if start := _attempt_started_at(internal, replica):
        ended_at = end.at if end.at is not None else now
        entry["startTime"] = render(min(start, ended_at, now))
    return entry | attempt_end(now, reason, replica.name, end)


def _attempt_started_at(internal: InternalStatus, replica: Replica) -> datetime | None:
    """When a replica's attempt began; of a pod that has gone, when it was to be created."""
    pod, record = replica.pod, internal.records.get(replica.name)
    if pod is not None and (pod.started or pod.created):
        return pod.started or pod.created
    if record is not None and record.not_before is not None:
        return record.not_before
    return parse(internal.attempts[-1].get("startTime"))
