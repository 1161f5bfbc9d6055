"""Scope Job: one incident, one restart (decision 24).

When one rank dies, its peers usually die with it or hang. The first failure of an attempt ends the
attempt, and costs one of the budget; later failures of pods that belong to an attempt that is over
cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import SuccessPolicy
from trainyard.lifecycle.internal_status import attempt_end
from trainyard.lifecycle.last_seen import last_seen
from trainyard.lifecycle.reconcile_context import Incident, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica, end_order
from trainyard.lifecycle.restart import repeated_failures, restart_backoff
from trainyard.lifecycle.restart.restart_policies import (
    identifies_cause,
    is_cause_certain,
    may_restart,
)

RestartFunction = Callable[
    [ReconcileContext, Sequence[Replica], Sequence[Replica], Replica], RestartDecision
]
"""Restarts for a cause, the last; before it all replicas, and those of them that failed."""


def decide(
    context: ReconcileContext, replicas: Sequence[Replica], down: Sequence[Replica]
) -> RestartDecision:
    """Decide on those that are down; `replicas` are all that the job still counts on."""
    same, fresh = _split(context, down)
    if same:
        names = [r.name for r in same]
        context = context.with_internal(context.internal.join(names, context.internal.attempt))
    response = (
        decide_by_cause(context, replicas, fresh, _restart)
        if fresh
        else RestartDecision(context.internal)
    )
    return replace(response, restarted=response.restarted.union(r.name for r in same))


def decide_by_cause(
    context: ReconcileContext,
    replicas: Sequence[Replica],
    own: Sequence[Replica],
    restart: RestartFunction,
) -> RestartDecision:
    """Wait until the cause is certain, then restart, or give up those that must not be."""
    cause = find_cause(own, context.settings)
    if context.workload.restart_judge and not identifies_cause(cause):
        cause = repeated_failures.find_culprit(own, cause, context.settings.incident_settle_seconds)
    if wait := cause_certain_at(context, replicas, cause):
        return RestartDecision(context.internal, wake_at=wait)
    if may_restart(context, context.internal, cause):
        return restart(context, replicas, own, cause)
    failed = [r for r in own if not may_restart(context, context.internal, r)]
    failed.sort(key=lambda r: r is not cause)
    # Decision 30: an elastic job may go on without them; the next pass then restarts the others.
    return RestartDecision(
        context.internal.lose(r.name for r in failed), failed_for_good=tuple(failed)
    )


def _split(
    context: ReconcileContext, down: Sequence[Replica]
) -> tuple[list[Replica], list[Replica]]:
    """Failures that belong to the incident under way, and others.

    Until all replicas run again, a survivor's failure belongs to it.
    """
    internal = context.internal
    if not context.workload.survivors_stay or internal.ready_at is not None:
        return [], list(down)
    same: list[Replica] = []
    fresh: list[Replica] = []
    for replica in down:
        survived = internal.wanted(replica.name) < internal.attempt
        (same if survived else fresh).append(replica)
    return same, fresh


def find_cause(fresh: Sequence[Replica], settings: Settings) -> Replica:
    """The replica that failed first.

    Clocks of nodes and of Kubernetes' whole seconds blur the order; so among failures close
    together one whose code tells the cause goes before the first.
    """
    ordered = sorted(fresh, key=end_order)
    first = ordered[0]
    close = end_order(first) + settings.incident_settle_seconds
    certain = (r for r in ordered if end_order(r) <= close and identifies_cause(r))
    return next(certain, first)


def cause_certain_at(
    context: ReconcileContext, replicas: Sequence[Replica], cause: Replica
) -> datetime | None:
    """When the cause will be certain, if it is not yet and it matters.

    What was seen first need not have happened first, on several nodes.
    """
    at = cause.exit.at if cause.exit else None
    if at is None or is_cause_certain(context, cause):
        return None
    if all(r.ended for r in replicas):
        return None
    until = at + timedelta(seconds=context.settings.incident_settle_seconds)
    return until if context.now < until else None


def _restart(
    context: ReconcileContext, replicas: Sequence[Replica], fresh: Sequence[Replica], cause: Replica
) -> RestartDecision:
    """Start those that are down anew, and in a job whose survivors cannot stay, all others too."""
    internal, now = context.internal, context.now
    end = cause.exit or Exit()
    failures = restart_backoff.count_failure_in_row(
        internal.failures, internal.ready_at, now, context.settings
    )
    start = now + restart_backoff.restart_delay(failures, context.settings, free=end.free)
    # Decision 24. A process group cannot be rejoined, but agents of torchrun take newcomers in:
    # https://docs.pytorch.org/docs/stable/elastic/run.html#membership-changes
    some = (
        context.workload.survivors_stay
        and not _newcomers_fail_soon(context, failures)
        and not _some_have_succeeded(context)
    )
    affected = fresh if some else replicas
    ended = attempt_end(now, end.reason, cause.name, end) | last_seen(context, cause)
    if some:
        internal = internal.restart_some([r.name for r in fresh], ended, start)
    else:
        apart = [r.name for r in context.view.replicas if r.type.restarts_alone]
        internal = internal.restart_all(ended, start, apart)
    internal = replace(internal, failures=failures)
    if not end.free:  # decision 24: however many failed, the incident costs one
        internal = replace(internal, backoff=internal.backoff + 1).count(count_by_type(affected))
    return RestartDecision(
        internal,
        incidents=(Incident(cause, end, len(affected), start),),
        restarted=frozenset(r.name for r in affected),
    )


def _newcomers_fail_soon(context: ReconcileContext, failures: int) -> bool:
    """Whether newcomers failed soon after they joined the survivors of an incident.

    An agent of torchrun that gives up closes the rendezvous for good (`shutdown` in
    torch/distributed/elastic/rendezvous/dynamic_rendezvous.py); survivors whose processes hang
    then wait in it for ever, and only a new start of all of them helps.
    """
    ready_at = context.internal.ready_at
    return failures > 1 and (ready_at is None or context.now - ready_at < membership_grace(context))


def _some_have_succeeded(context: ReconcileContext) -> bool:
    """Whether replicas that have to succeed all have begun to end: agents of torchrun whose
    processes have ended with 0 close the rendezvous, and let nobody in any more."""
    needs_all = context.workload.success_policy is SuccessPolicy.ALL_REPLICAS
    return needs_all and any(r.state is State.SUCCEEDED for r in context.view.not_running)


def membership_grace(context: ReconcileContext) -> timedelta:
    """How long after replicas joined others a failure may come of that."""
    return timedelta(seconds=context.settings.resize_grace_seconds)


def count_by_type(replicas: Iterable[Replica]) -> Counter[str]:
    """Only replicas that had a pod were restarted."""
    return Counter(r.type.name for r in replicas if r.pod is not None or r.entry is not None)
