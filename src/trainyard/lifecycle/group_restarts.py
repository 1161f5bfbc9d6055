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

from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import SuccessPolicy
from trainyard.lifecycle import backoff, judge
from trainyard.lifecycle.ledger import ending
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.passes import Incident, Pass, Response
from trainyard.lifecycle.replicas import Replica, end_order
from trainyard.lifecycle.restart_policies import is_certain, may_restart, tells_cause

Restart = Callable[[Pass, Sequence[Replica], Sequence[Replica], Replica], Response]
"""Restarts for a cause, the last; before it all replicas, and those of them that failed."""


def respond(job: Pass, replicas: Sequence[Replica], down: Sequence[Replica]) -> Response:
    """Decide on those that are down; `replicas` are all that the job still counts on."""
    same, fresh = _split(job, down)
    if same:
        names = [r.name for r in same]
        job = job.having(job.ledger.join(names, job.ledger.attempt))
    response = answer(job, replicas, fresh, _restart) if fresh else Response(job.ledger)
    return replace(response, restarted=response.restarted.union(r.name for r in same))


def answer(
    job: Pass, replicas: Sequence[Replica], own: Sequence[Replica], restart: Restart
) -> Response:
    """Wait until the cause is certain, then restart, or give up those that must not be."""
    cause = cause_of(own, job.settings)
    if job.workload.restart_judge and not tells_cause(cause):
        cause = judge.culprit(own, cause, job.settings.incident_settle_seconds)
    if wait := settling(job, replicas, cause):
        return Response(job.ledger, wake_at=wait)
    if may_restart(job, job.ledger, cause):
        return restart(job, replicas, own, cause)
    failed = [r for r in own if not may_restart(job, job.ledger, r)]
    failed.sort(key=lambda r: r is not cause)
    # Decision 30: an elastic job may go on without them; the next pass then restarts the others.
    return Response(job.ledger.lose(r.name for r in failed), failed_for_good=tuple(failed))


def _split(job: Pass, down: Sequence[Replica]) -> tuple[list[Replica], list[Replica]]:
    """Failures that belong to the incident under way, and others.

    Until all replicas run again, a survivor's failure belongs to it.
    """
    ledger = job.ledger
    if not job.workload.survivors_stay or ledger.ready_at is not None:
        return [], list(down)
    same: list[Replica] = []
    fresh: list[Replica] = []
    for replica in down:
        survived = ledger.wanted(replica.name) < ledger.attempt
        (same if survived else fresh).append(replica)
    return same, fresh


def cause_of(fresh: Sequence[Replica], settings: Settings) -> Replica:
    """The replica that failed first.

    Clocks of nodes and of Kubernetes' whole seconds blur the order; so among failures close
    together one whose code tells the cause goes before the first.
    """
    ordered = sorted(fresh, key=end_order)
    first = ordered[0]
    close = end_order(first) + settings.incident_settle_seconds
    telling = (r for r in ordered if end_order(r) <= close and tells_cause(r))
    return next(telling, first)


def settling(job: Pass, replicas: Sequence[Replica], cause: Replica) -> datetime | None:
    """When the cause will be certain, if it is not yet and it matters.

    What was seen first need not have happened first, on several nodes.
    """
    at = cause.exit.at if cause.exit else None
    if at is None or is_certain(job, cause):
        return None
    if all(r.ended for r in replicas):
        return None
    until = at + timedelta(seconds=job.settings.incident_settle_seconds)
    return until if job.now < until else None


def _restart(
    job: Pass, replicas: Sequence[Replica], fresh: Sequence[Replica], cause: Replica
) -> Response:
    """Start those that are down anew, and in a job whose survivors cannot stay, all others too."""
    ledger, now = job.ledger, job.now
    end = cause.exit or Exit()
    failures = backoff.failures_in_row(ledger.failures, ledger.ready_at, now, job.settings)
    start = now + backoff.delay(failures, job.settings, free=end.free)
    # Decision 24. A process group cannot be rejoined, but agents of torchrun take newcomers in:
    # https://docs.pytorch.org/docs/stable/elastic/run.html#membership-changes
    some = job.workload.survivors_stay and not _in_vain(job, failures) and not _some_left(job)
    affected = fresh if some else replicas
    ended = ending(now, end.reason, cause.name, end)
    if some:
        ledger = ledger.restart_some([r.name for r in fresh], ended, start)
    else:
        apart = [r.name for r in job.view.replicas if r.type.restarts_alone]
        ledger = ledger.restart_all(ended, start, apart)
    ledger = replace(ledger, failures=failures)
    if not end.free:  # decision 24: however many failed, the incident costs one
        ledger = replace(ledger, backoff=ledger.backoff + 1).count(per_type(affected))
    return Response(
        ledger,
        incidents=(Incident(cause, end, len(affected), start),),
        restarted=frozenset(r.name for r in affected),
    )


def _in_vain(job: Pass, failures: int) -> bool:
    """Whether newcomers failed soon after they joined the survivors of an incident.

    An agent of torchrun that gives up closes the rendezvous for good (`shutdown` in
    torch/distributed/elastic/rendezvous/dynamic_rendezvous.py); survivors whose processes hang
    then wait in it for ever, and only a new start of all of them helps.
    """
    ready_at = job.ledger.ready_at
    return failures > 1 and (ready_at is None or job.now - ready_at < grace(job))


def _some_left(job: Pass) -> bool:
    """Whether replicas that have to succeed all have begun to end: agents of torchrun whose
    processes have ended with 0 close the rendezvous, and let nobody in any more."""
    needs_all = job.workload.success_policy is SuccessPolicy.ALL_REPLICAS
    return needs_all and any(r.state is State.SUCCEEDED for r in job.view.not_running)


def grace(job: Pass) -> timedelta:
    """How long after replicas joined others a failure may come of that."""
    return timedelta(seconds=job.settings.resize_grace_seconds)


def per_type(replicas: Iterable[Replica]) -> Counter[str]:
    """Only replicas that had a pod were restarted."""
    return Counter(r.type.name for r in replicas if r.pod is not None or r.entry is not None)
