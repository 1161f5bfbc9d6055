"""What the end of replicas leads to: restarts, or failures for good.

A replica that was taken away (deleted by somebody else, evicted, lost with its node) is restarted
at no cost whatever its policy. Which others are, says the policy (`restart_policies`); how they
are, the scope, of the job or of a replica type: all together (`group_restarts`) or each for itself
(`single_restarts`), which of an elastic job go on with the others (`elastic_restarts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import filterfalse

from trainyard.kinds.shared.workload import Scope
from trainyard.lifecycle.elastic import elastic_restarts
from trainyard.lifecycle.internal_status import COMPLETED, attempt_end
from trainyard.lifecycle.reconcile_context import Incident, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import (
    group_restarts,
    pod_failure_rules,
    repeated_failures,
    restart_backoff,
    single_restarts,
)
from trainyard.lifecycle.restart.restart_policies import restarts_after_success
from trainyard.schema.times import earliest


def decide(context: ReconcileContext) -> RestartDecision:
    """Decide on everything that ended since the last pass."""
    context = repeated_failures.with_refilled_budget(context)
    return keep_rulings(context, repeated_failures.record_failures(context, _decide(context)))


def keep_rulings(context: ReconcileContext, response: RestartDecision) -> RestartDecision:
    """With what rules said of replicas which a later pass may see less of."""
    internal, ruled = response.internal, {}
    for replica in (*response.failed_for_good, *_taken_and_ruled(context, response)):
        ruling = replica.exit.ruling if replica.exit else None
        record = internal.record(replica.name)
        if record.ruling != ruling:
            ruled[replica.name] = replace(record, ruling=ruling)
    return replace(response, internal=internal.put(ruled)) if ruled else response


def _taken_and_ruled(context: ReconcileContext, response: RestartDecision) -> Iterator[Replica]:
    """Those taken away and counted as failed by a rule that a later pass restarts or gives up."""
    for replica in context.view.not_running:
        ruling = replica.exit.ruling if replica.exit else None
        if ruling is not None and ruling.taken and replica.name not in response.restarted:
            yield replica


def _decide(context: ReconcileContext) -> RestartDecision:
    ended = context.view.not_running
    down = [r for r in ended if r.state is State.FAILED or r.state is State.TAKEN]
    again = [r for r in ended if restarts_after_success(context.workload, context.internal, r)]
    if context.workload.scope is Scope.REPLICA:
        return _decide_each(context, down, again)
    if not any(t.restarts_alone for t in context.workload.types):
        return _decide_together(context, down, again)
    alone = _decide_each(context, *(list(filter(_restarts_alone, each)) for each in (down, again)))
    rest = (list(filterfalse(_restarts_alone, each)) for each in (down, again))
    return _combine(alone, _decide_together(context.with_internal(alone.internal), *rest))


def _restarts_alone(replica: Replica) -> bool:
    return replica.type.restarts_alone


def _combine(first: RestartDecision, second: RestartDecision) -> RestartDecision:
    """Both answers; the internal status is the second's, which began with the first's."""
    return RestartDecision(
        second.internal,
        incidents=(*first.incidents, *second.incidents),
        failed_for_good=(*first.failed_for_good, *second.failed_for_good),
        wake_at=earliest(first.wake_at, second.wake_at),
        restarted=first.restarted | second.restarted,
    )


def _decide_each(
    context: ReconcileContext, down: Sequence[Replica], again: Sequence[Replica]
) -> RestartDecision:
    # Where rules decide there is no single end that is worth waiting for.
    due = [
        _success_decided_at(context, r) if context.workload.deciding_replica else context.now
        for r in again
    ]
    ready = [r for r, moment in zip(again, due, strict=True) if moment <= context.now]
    response = single_restarts.decide(context, [*down, *ready])
    later = (moment for moment in due if moment > context.now)
    return replace(response, wake_at=earliest(response.wake_at, *later))


def _decide_together(
    context: ReconcileContext, down: Sequence[Replica], again: Sequence[Replica]
) -> RestartDecision:
    gone = [r for r in down if context.internal.is_lost(r.name)]
    replicas = list(filterfalse(_restarts_alone, context.view.replicas))
    if gone:  # an elastic job went on without them
        down = [r for r in down if not context.internal.is_lost(r.name)]
        replicas = [r for r in replicas if not context.internal.is_lost(r.name)]
    response = RestartDecision(context.internal)
    if down:
        unknown = (r for r in replicas if r.state is State.UNKNOWN)
        lost = (_lost_with_node(context, replica) for replica in unknown)
        is_elastic = context.workload.elastic is not None and context.workload.survivors_stay
        decide_on = elastic_restarts.decide if is_elastic else group_restarts.decide
        response = decide_on(context, replicas, [*down, *lost])
    if not response.restarted and not response.failed_for_good:
        response = _restart_after_success(context.with_internal(response.internal), response, again)
    return replace(response, failed_for_good=(*response.failed_for_good, *gone))


def _lost_with_node(context: ReconcileContext, replica: Replica) -> Replica:
    """One that cannot be reached when its peers fail is taken for the cause, as if deleted."""
    _, end = pod_failure_rules.apply_rules(
        context.workload.pod_failure_rules,
        replica.type,
        State.TAKEN,
        Exit(reason="NodeLost", free=True),
        replica.pod,
        (),
    )
    return replica._replace(exit=end)


# Exits 0 that are followed by a restart.


def _restart_after_success(
    context: ReconcileContext, response: RestartDecision, again: Sequence[Replica]
) -> RestartDecision:
    """In a job that otherwise restarts together: each costs one, alone."""
    internal, incidents, wake_at = context.internal, [], response.wake_at
    for replica in again:
        due = _success_decided_at(context, replica)
        if context.now < due:
            wake_at = earliest(wake_at, due)
        elif restarts_after_success(context.workload, internal, replica):
            closed = attempt_end(context.now, COMPLETED, replica.name, replica.exit)
            internal = internal.restart_some([replica.name], closed, context.now)
            internal = replace(internal, backoff=internal.backoff + 1).count({replica.type.name: 1})
            incidents.append(Incident(replica, replica.exit or Exit(), 1, context.now))
    return replace(
        response,
        internal=internal,
        incidents=(*response.incidents, *incidents),
        restarted=response.restarted.union(incident.cause.name for incident in incidents),
        wake_at=wake_at,
    )


def _success_decided_at(context: ReconcileContext, replica: Replica) -> datetime:
    """When an exit 0 is decided on, where one replica's end is the job's success.

    That one mostly ends at about the same time as the others.
    """
    at = replica.exit.at if replica.exit else None
    return context.now if at is None else at + restart_backoff.restart_delay(1, context.settings)
