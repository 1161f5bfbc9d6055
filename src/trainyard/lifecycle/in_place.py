"""Restarts in place: the same pods go on with the next attempt (decision 283).

What is decided and counted is what `restarts` decides. Then the account says until when the pods
may take to end their processes and to say so; by what stands in it, a pod is told that its attempt
is over, and by the attempt in its own annotation that the next may start. So both words outlive any
controller. Whatever does not answer, or is not well any more, has all that wait deleted, and new
pods come as they would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kube.resources import PODS
from trainyard.lifecycle import cleanup, deletion, held, restarts
from trainyard.lifecycle.actions import Action, Patch
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.outcomes import State
from trainyard.lifecycle.passes import Pass, Response
from trainyard.lifecycle.replicas import Replica
from trainyard.lifecycle.report import Report
from trainyard.schema.times import earliest

LIMIT = timedelta(seconds=30)
"""How long pods may take to answer, besides what their processes have to end and the delay."""
_OTHERS = timedelta(seconds=1)
"""Pods ask at least twice a second, or in a large job as often as each may."""
_FRESH = timedelta(seconds=10)
"""Whoever waits for the word asks several times a second, or a few seconds in a large job."""


def word(status: Mapping[str, Any], pod: Pod) -> dict[str, Any]:
    """What a pod's holder is told: the attempt that is wanted, and the one to start in this pod."""
    internal = status.get("internal") or {}
    record = (internal.get("replicas") or {}).get(pod.name) or {}
    return {"wanted": record.get("attempt", internal.get("floor", 1)), "start": pod.attempt}


def respond(job: Pass) -> Response:
    """As `restarts.respond`, with the account saying whether all restart where they are."""
    if job.workload.in_place is None:
        return restarts.respond(job)
    if unheard := _unheard_until(job):
        return restarts.kept(job, Response(job.ledger, wake_at=unheard))
    response = restarts.respond(job)
    if not response.restarted:
        return response
    until = None
    if response.incidents and all(
        r.name in response.restarted and r.state is not State.TAKEN and _is_well(job, r.pod)
        for r in job.view.replicas
    ):
        start = max(incident.start for incident in response.incidents)
        until = max(job.now + timedelta(seconds=job.workload.in_place), start) + LIMIT
    return replace(response, ledger=replace(response.ledger, in_place_until=until))


def _unheard_until(job: Pass) -> datetime | None:
    """How long the first that told of its end waits for the others to be heard at all.

    A controller that takes over hears in any order what happened while there was none. Of an end
    that another has heard, status does not tell the last words.
    """
    holds, since, is_any_unheard = job.observed.heard.holds, [], False
    for pod in (r.pod for r in job.view.replicas if r.pod is not None):
        hold = holds.get(pod.name)
        is_any_unheard |= hold is None and (pod.held or pod.phase == "Running")
        if pod.held:
            hold = held.of(pod, hold)
            since.append(job.observed.since if hold is None else hold.since)
    first = min((each for each in since if each is not None), default=None)
    if not is_any_unheard or first is None:
        return None
    return first + _OTHERS if first <= job.now < first + _OTHERS else None


def go_on(job: Pass, report: Report) -> tuple[Pass, list[Action], datetime | None]:
    """Let pods of attempts that are over go, or go on: the pass with the account as it is then,
    what is to be done, and when to look again."""
    until, olds = job.ledger.in_place_until, _olds(job)
    if until is None:
        return job, [*deletion.removals(job.view)], None
    over = job.having(replace(job.ledger, in_place_until=None))
    silent = [each for each in olds if not _is_waiting(job, each)]
    lost = [r for r in job.view.not_running if _is_lost(job, r)]
    if olds and (lost or (silent and job.now >= until)):
        report.not_in_place(lost or silent, is_lost=bool(lost))
    elif olds:
        start = job.ledger.not_before
        keeps: list[Action] = [*deletion.delete_all(job.view.surplus)]
        if silent or (start is not None and job.now < start):
            return job, keeps, until if silent or start is None else earliest(until, start)
        report.in_place([(each.name, job.ledger.wanted(each.name)) for each in olds])
        return job, [*keeps, *(_start(job, each) for each in olds)], None
    return over, [*deletion.removals(job.view)], None


def _olds(job: Pass) -> Sequence[Pod]:
    return deletion.superseded(job.view)


def _is_lost(job: Pass, replica: Replica) -> bool:
    """Whether its pod cannot go on any more."""
    if replica.pod is not None:
        return False
    return not _is_well(job, replica.old)


def _is_well(job: Pass, pod: Pod | None) -> bool:
    """Whether a pod runs, all of it, but for a command that failed and is held."""
    if pod is None or pod.deleting is not None or cleanup.is_stopped(pod):
        return False
    if pod.node in job.observed.lost_nodes or not (pod.held or pod.phase == "Running"):
        return False
    main = held.main_container(job.workload, pod)
    return all(
        each.is_init or each.state == "Running" or (pod.held and each.name == main)
        for each in pod.containers
    )


def _is_waiting(job: Pass, pod: Pod) -> bool:
    """Whether its processes have ended, and it has said so just now."""
    hold = held.of(pod, job.observed.heard.holds.get(pod.name))
    return hold is not None and hold.ended and job.now - hold.heard <= _FRESH


def _start(job: Pass, pod: Pod) -> Patch:
    annotations = {labels.ATTEMPT: str(job.ledger.wanted(pod.name))}
    return Patch(PODS, pod.name, pod.uid, {"metadata": {"annotations": annotations}})
