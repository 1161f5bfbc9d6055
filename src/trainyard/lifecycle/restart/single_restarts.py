"""Scope Replica: each replica is restarted for itself, and pays for itself (decision 24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.lifecycle.ledger import COMPLETED, Ledger, Record, attempt_end
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.reconcile_context import Incident, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_view import Replica, end_order
from trainyard.lifecycle.restart import restart_backoff
from trainyard.lifecycle.restart.restart_policies import may_restart
from trainyard.schema.times import parse, render


def decide(context: ReconcileContext, ended: Sequence[Replica]) -> RestartDecision:
    """Decide on each that failed, or that has succeeded and is to run again."""
    records = dict(context.ledger.records)
    ledger = replace(context.ledger, records=records)  # ours alone: a copy for each would add up
    incidents, failed = [], []
    for replica in sorted(ended, key=end_order):
        if may_restart(context, ledger, replica):
            start, ledger = _restart(context, ledger, records, replica)
            incidents.append(Incident(replica, replica.exit or Exit(), 1, start))
        elif replica.state is not State.SUCCEEDED:
            failed.append(replica)
    restarted = frozenset(incident.cause.name for incident in incidents)
    return RestartDecision(ledger, tuple(incidents), tuple(failed), restarted=restarted)


def _restart(
    context: ReconcileContext, ledger: Ledger, records: dict[str, Record], replica: Replica
) -> tuple[datetime, Ledger]:
    """When it starts anew, and the account; `records` are the ledger's, and are changed."""
    end = replica.exit or Exit()
    record = records.get(replica.name) or Record(ledger.floor)
    healthy_since = replica.pod.started if replica.pod else None
    failures = restart_backoff.count_failure_in_row(
        record.failures, healthy_since, context.now, context.settings
    )
    start = context.now + restart_backoff.restart_delay(failures, context.settings, free=end.free)
    counted = 0 if end.free else 1  # decision 24
    entry = finished_attempt(ledger, replica, context.now)
    alone = replica.type.restarts_alone
    ledger = ledger.note_beside(entry) if alone else ledger.note(entry, start)
    records[replica.name] = Record(record.attempt + 1, record.restarts + counted, failures, start)
    if counted:
        ledger = ledger.count({replica.type.name: 1})
        if context.workload.shared_budget:
            ledger = replace(ledger, backoff=ledger.backoff + 1)
    return start, ledger


def finished_attempt(ledger: Ledger, replica: Replica, now: datetime) -> dict[str, Any]:
    """The attempt that a single replica has ended, as `status.attempts` tells it."""
    end = replica.exit or Exit()
    reason = COMPLETED if end.code == 0 else end.reason or "Error"
    entry: dict[str, Any] = {"number": ledger.wanted(replica.name)}
    if start := _attempt_started_at(ledger, replica):
        ended_at = end.at if end.at is not None else now
        entry["startTime"] = render(min(start, ended_at, now))
    return entry | attempt_end(now, reason, replica.name, end)


def _attempt_started_at(ledger: Ledger, replica: Replica) -> datetime | None:
    """When a replica's attempt began; of a pod that has gone, when it was to be created."""
    pod, record = replica.pod, ledger.records.get(replica.name)
    if pod is not None and (pod.started or pod.created):
        return pod.started or pod.created
    if record is not None and record.not_before is not None:
        return record.not_before
    return parse(ledger.attempts[-1].get("startTime"))
