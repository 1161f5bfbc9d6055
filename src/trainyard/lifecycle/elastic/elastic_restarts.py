"""Restarts in an elastic job whose survivors stay: each replica pays for its own failure only.

Others of the job are never restarted along. What fails because members joined or left costs
nothing (decision 94); a newcomer's own failure is its own (decision 95).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from trainyard.lifecycle.internal_status import ReplicaRecord, attempt_end
from trainyard.lifecycle.reconcile_context import Incident, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import restart_backoff
from trainyard.lifecycle.restart.group_restarts import (
    count_by_type,
    decide_by_cause,
    find_cause,
    membership_grace,
)


def decide(
    context: ReconcileContext, replicas: Sequence[Replica], down: Sequence[Replica]
) -> RestartDecision:
    """Decide on those that are down; `replicas` are all that the job still counts on."""
    excused, own = _split(context, down)
    taken_in = _excuse(context, excused)
    response = (
        decide_by_cause(context.with_internal(taken_in.internal), replicas, own, _restart)
        if own
        else taken_in
    )
    if not excused or not own:
        return response
    return replace(
        response,
        incidents=(*taken_in.incidents, *response.incidents),
        restarted=response.restarted | taken_in.restarted,
    )


def _split(
    context: ReconcileContext, down: Sequence[Replica]
) -> tuple[list[Replica], list[Replica]]:
    """Those that fail because members changed, and those that fail by themselves."""
    excused: list[Replica] = []
    own: list[Replica] = []
    for replica in down:
        (excused if _is_excused(context, replica) else own).append(replica)
    return excused, own


def _is_excused(context: ReconcileContext, replica: Replica) -> bool:
    """Whether a replica that was there before others joined or left has failed because of that.

    That cannot be seen in how it ended. So it is told by attempts, and by whether members were
    changing; and where the change itself cost nothing, a replica is believed once only, until it
    has run well for long: a job that fails whatever its size must end, however often it changes.
    """
    ruling = replica.exit.ruling if replica.exit else None
    if ruling is not None and ruling.is_cause:  # decision 115: nobody ends so because others did
        return False
    internal = context.internal
    at = _ended_at(context, replica)
    if internal.wanted(replica.name) >= internal.attempt or not _members_change(context, at):
        return False
    is_own_fault = replica.exit is not None and not replica.exit.free
    if not is_own_fault or not internal.was_resized:
        return True
    started, changed = replica.pod.started if replica.pod else None, internal.resized_at
    if started is not None and changed is not None and started > changed:
        return False
    return not internal.record(replica.name).excused or restart_backoff.was_long_healthy_run(
        started, at, context.settings
    )


def _ended_at(context: ReconcileContext, replica: Replica) -> datetime:
    at = replica.exit.at if replica.exit else None
    return context.now if at is None else min(at, context.now)


def _members_change(context: ReconcileContext, moment: datetime) -> bool:
    """Whether replicas join or leave the others at that moment, or did so shortly before."""
    internal = context.internal
    if internal.ready_at is None or context.view.surplus:
        return True
    changes = [internal.resized_at]
    for replica in context.view.replicas:  # those among them that are lost by now
        if internal.wanted(replica.name) == internal.attempt:
            changes.append(replica.pod.started if replica.pod else None)
            changes.append(replica.exit.at if replica.exit else None)
    latest = max((change for change in changes if change is not None), default=None)
    return latest is not None and moment - latest < membership_grace(context)


def _excuse(context: ReconcileContext, excused: Sequence[Replica]) -> RestartDecision:
    """Let replicas join the attempt under way, at no cost and first time at once."""
    if not excused:
        return RestartDecision(context.internal)
    internal, records, starts = context.internal, {}, []
    for replica in excused:
        failures = _count_failure(context, replica)
        start = context.now + restart_backoff.restart_delay(failures, context.settings, free=True)
        if internal.not_before is not None:  # that of an incident under way
            start = max(start, internal.not_before)
        believed = internal.was_resized and not (replica.exit or Exit()).free
        records[replica.name] = ReplicaRecord(
            internal.attempt,
            failures=failures,
            not_before=start,
            excused=believed or internal.record(replica.name).excused,
        )
        starts.append(start)
    cause = find_cause(excused, context.settings)
    end = cause.exit or Exit()
    incident = Incident(cause, end, len(excused), min(starts), members_changed=not end.free)
    restarted = frozenset(replica.name for replica in excused)
    return RestartDecision(internal.put(records), incidents=(incident,), restarted=restarted)


def _restart(
    context: ReconcileContext, replicas: Sequence[Replica], own: Sequence[Replica], cause: Replica
) -> RestartDecision:
    """Start those anew that failed by themselves, each after its own delay."""
    internal, now, end = context.internal, context.now, cause.exit or Exit()
    failures = {replica.name: _count_failure(context, replica) for replica in own}
    starts = {
        name: now + restart_backoff.restart_delay(count, context.settings, free=end.free)
        for name, count in failures.items()
    }
    start = starts[cause.name]
    # Decision 95: nobody waits for a newcomer.
    opens = now if _is_newcomer(context, replicas, cause) else start
    after = internal.restart_some(starts, attempt_end(now, end.reason, cause.name, end), opens)
    records = {
        name: ReplicaRecord(
            after.attempt,
            failures=failures[name],
            not_before=starts[name],
            excused=internal.record(name).excused,
        )
        for name in starts
    }
    after = after.put(records)
    if not end.free:  # decision 24: however many failed, the incident costs one
        after = replace(after, backoff=after.backoff + 1).count(count_by_type(own))
    return RestartDecision(
        after, incidents=(Incident(cause, end, len(own), start),), restarted=frozenset(starts)
    )


def _is_newcomer(context: ReconcileContext, replicas: Sequence[Replica], replica: Replica) -> bool:
    """Whether a replica failed soon after it had joined others."""
    internal, started = context.internal, replica.pod.started if replica.pod else None
    if internal.wanted(replica.name) < internal.attempt:
        return False
    if started is not None and _ended_at(context, replica) - started >= membership_grace(context):
        return False
    return any(internal.wanted(other.name) < internal.attempt for other in replicas)


def _count_failure(context: ReconcileContext, replica: Replica) -> int:
    """The number of this failure of the replica in a row."""
    before = context.internal.record(replica.name).failures
    started = replica.pod.started if replica.pod else None
    return restart_backoff.count_failure_in_row(
        before, started, _ended_at(context, replica), context.settings
    )
