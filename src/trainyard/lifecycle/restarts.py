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
from trainyard.lifecycle import (
    backoff,
    elastic_restarts,
    failure_policy,
    group_restarts,
    judge,
    single_restarts,
)
from trainyard.lifecycle.ledger import COMPLETED, ending
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.passes import Incident, Pass, Response
from trainyard.lifecycle.replicas import Replica
from trainyard.lifecycle.restart_policies import restarts_after_success
from trainyard.schema.times import earliest


def respond(job: Pass) -> Response:
    """Decide on everything that ended since the last pass."""
    job = judge.refilled(job)
    return kept(job, judge.noted(job, _respond(job)))


def kept(job: Pass, response: Response) -> Response:
    """With what rules said of replicas which a later pass may see less of."""
    ledger, ruled = response.ledger, {}
    for replica in (*response.failed_for_good, *_waiting(job, response)):
        ruling = replica.exit.ruling if replica.exit else None
        record = ledger.record(replica.name)
        if record.ruling != ruling:
            ruled[replica.name] = replace(record, ruling=ruling)
    return replace(response, ledger=ledger.put(ruled)) if ruled else response


def _waiting(job: Pass, response: Response) -> Iterator[Replica]:
    """Those taken away and counted as failed by a rule that a later pass restarts or gives up."""
    for replica in job.view.not_running:
        ruling = replica.exit.ruling if replica.exit else None
        if ruling is not None and ruling.taken and replica.name not in response.restarted:
            yield replica


def _respond(job: Pass) -> Response:
    ended = job.view.not_running
    down = [r for r in ended if r.state is State.FAILED or r.state is State.TAKEN]
    again = [r for r in ended if restarts_after_success(job.workload, job.ledger, r)]
    if job.workload.scope is Scope.REPLICA:
        return _each(job, down, again)
    if not any(t.restarts_alone for t in job.workload.types):
        return _together(job, down, again)
    alone = _each(job, *(list(filter(_is_apart, each)) for each in (down, again)))
    rest = (list(filterfalse(_is_apart, each)) for each in (down, again))
    return _both(alone, _together(job.having(alone.ledger), *rest))


def _is_apart(replica: Replica) -> bool:
    return replica.type.restarts_alone


def _both(first: Response, second: Response) -> Response:
    """Both answers; the account is the second's, which began with the first's."""
    return Response(
        second.ledger,
        incidents=(*first.incidents, *second.incidents),
        failed_for_good=(*first.failed_for_good, *second.failed_for_good),
        wake_at=earliest(first.wake_at, second.wake_at),
        restarted=first.restarted | second.restarted,
    )


def _each(job: Pass, down: Sequence[Replica], again: Sequence[Replica]) -> Response:
    # Where rules decide there is no single end that is worth waiting for.
    due = [_due(job, r) if job.workload.decides else job.now for r in again]
    ready = [r for r, moment in zip(again, due, strict=True) if moment <= job.now]
    response = single_restarts.respond(job, [*down, *ready])
    later = (moment for moment in due if moment > job.now)
    return replace(response, wake_at=earliest(response.wake_at, *later))


def _together(job: Pass, down: Sequence[Replica], again: Sequence[Replica]) -> Response:
    gone = [r for r in down if job.ledger.is_lost(r.name)]
    replicas = list(filterfalse(_is_apart, job.view.replicas))
    if gone:  # an elastic job went on without them
        down = [r for r in down if not job.ledger.is_lost(r.name)]
        replicas = [r for r in replicas if not job.ledger.is_lost(r.name)]
    response = Response(job.ledger)
    if down:
        unknown = (r for r in replicas if r.state is State.UNKNOWN)
        lost = (_lost_with_node(job, replica) for replica in unknown)
        is_elastic = job.workload.elastic is not None and job.workload.survivors_stay
        policy = elastic_restarts if is_elastic else group_restarts
        response = policy.respond(job, replicas, [*down, *lost])
    if not response.restarted and not response.failed_for_good:
        response = _again(job.having(response.ledger), response, again)
    return replace(response, failed_for_good=(*response.failed_for_good, *gone))


def _lost_with_node(job: Pass, replica: Replica) -> Replica:
    """One that cannot be reached when its peers fail is taken for the cause, as if deleted."""
    _, end = failure_policy.judge(
        job.workload.pod_failure_rules,
        replica.type,
        State.TAKEN,
        Exit(reason="NodeLost", free=True),
        replica.pod,
        (),
    )
    return replica._replace(exit=end)


# Exits 0 that are followed by a restart.


def _again(job: Pass, response: Response, again: Sequence[Replica]) -> Response:
    """In a job that otherwise restarts together: each costs one, alone."""
    ledger, incidents, wake_at = job.ledger, [], response.wake_at
    for replica in again:
        due = _due(job, replica)
        if job.now < due:
            wake_at = earliest(wake_at, due)
        elif restarts_after_success(job.workload, ledger, replica):
            closed = ending(job.now, COMPLETED, replica.name, replica.exit)
            ledger = ledger.restart_some([replica.name], closed, job.now)
            ledger = replace(ledger, backoff=ledger.backoff + 1).count({replica.type.name: 1})
            incidents.append(Incident(replica, replica.exit or Exit(), 1, job.now))
    return replace(
        response,
        ledger=ledger,
        incidents=(*response.incidents, *incidents),
        restarted=response.restarted.union(incident.cause.name for incident in incidents),
        wake_at=wake_at,
    )


def _due(job: Pass, replica: Replica) -> datetime:
    """When an exit 0 is decided on, where one replica's end is the job's success.

    That one mostly ends at about the same time as the others.
    """
    at = replica.exit.at if replica.exit else None
    return job.now if at is None else at + backoff.delay(1, job.settings)
