"""Restarts in place: the same pods go on with the next attempt (decision 283).

What is decided and counted is what `restart_decision` decides. Then `status.internal` says until
when the pods may take to end their processes and to say so; by what stands in it, a pod is told
that its attempt is over, and by the attempt in its own annotation that the next may start. So both
outlive any controller. Whatever does not answer, or is not well any more, has all that wait
deleted, and new pods come as they would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Action, Patch
from trainyard.lifecycle.in_place import in_place_pods
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pods import pod_cleanup, pod_deletion
from trainyard.lifecycle.reconcile_context import ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import restart_decision
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import earliest

ANSWER_LIMIT = timedelta(seconds=30)
"""How long pods may take to answer, besides what their processes have to end and the delay."""
_WAIT_FOR_OTHERS = timedelta(seconds=1)
"""Pods ask at least twice a second, or in a large job as often as each may."""
_RECENT = timedelta(seconds=10)
"""Whoever waits for the word asks several times a second, or a few seconds in a large job."""


def instruction_for_pod(status: Mapping[str, Any], pod: Pod) -> dict[str, Any]:
    """The answer to a pod's report: the attempt wanted, and the one to start in this pod."""
    internal = status.get("internal") or {}
    record = (internal.get("replicas") or {}).get(pod.name) or {}
    return {"wanted": record.get("attempt", internal.get("floor", 1)), "start": pod.attempt}


def decide(context: ReconcileContext) -> RestartDecision:
    """As `restart_decision.decide`, and whether all restart where they are."""
    if context.workload.in_place is None:
        return restart_decision.decide(context)
    if waits_until := _unreported_until(context):
        return restart_decision.keep_rulings(
            context, RestartDecision(context.internal, wake_at=waits_until)
        )
    response = restart_decision.decide(context)
    if not response.restarted:
        return response
    until = None
    if response.incidents and all(
        r.name in response.restarted
        and r.state is not State.TAKEN
        and _can_restart_in_place(context, r.pod)
        for r in context.view.replicas
    ):
        start = max(incident.start for incident in response.incidents)
        until = (
            max(context.now + timedelta(seconds=context.workload.in_place), start) + ANSWER_LIMIT
        )
    return replace(response, internal=replace(response.internal, in_place_until=until))


def _unreported_until(context: ReconcileContext) -> datetime | None:
    """How long the first end that was reported waits for a first report of each other pod.

    A controller that takes over gets the reports in any order of what happened while there was
    none. Of an end that was reported to another, status does not hold the last output.
    """
    reports, since, is_any_unreported = context.observed.reports.in_place, [], False
    for pod in (r.pod for r in context.view.replicas if r.pod is not None):
        report = reports.get(pod.name)
        is_any_unreported |= report is None and (
            pod.awaits_in_place_restart or pod.phase == "Running"
        )
        if pod.awaits_in_place_restart:
            report = in_place_pods.current_report(pod, report)
            since.append(context.observed.since if report is None else report.since)
    first = min((each for each in since if each is not None), default=None)
    if not is_any_unreported or first is None:
        return None
    return first + _WAIT_FOR_OTHERS if first <= context.now < first + _WAIT_FOR_OTHERS else None


def continue_in_place(
    context: ReconcileContext, status: StatusBuilder
) -> tuple[ReconcileContext, list[Action], datetime | None]:
    """Let pods of attempts that are over go, or go on: the context as it is then,
    what is to be done, and when to look again."""
    until, olds = context.internal.in_place_until, _superseded(context)
    if until is None:
        return context, [*pod_deletion.delete_unwanted(context.view)], None
    over = context.with_internal(replace(context.internal, in_place_until=None))
    silent = [each for each in olds if not _is_waiting(context, each)]
    lost = [r for r in context.view.not_running if _is_lost(context, r)]
    if olds and (lost or (silent and context.now >= until)):
        status.report_not_in_place(lost or silent, is_lost=bool(lost))
    elif olds:
        start = context.internal.not_before
        keeps: list[Action] = [*pod_deletion.delete_pods(context.view.surplus)]
        if silent or (start is not None and context.now < start):
            return context, keeps, until if silent or start is None else earliest(until, start)
        status.report_in_place_start(
            [(each.name, context.internal.wanted(each.name)) for each in olds]
        )
        return context, [*keeps, *(_start_attempt(context, each) for each in olds)], None
    return over, [*pod_deletion.delete_unwanted(context.view)], None


def _superseded(context: ReconcileContext) -> Sequence[Pod]:
    return pod_deletion.superseded_pods(context.view)


def _is_lost(context: ReconcileContext, replica: Replica) -> bool:
    """Whether its pod cannot go on any more."""
    if replica.pod is not None:
        return False
    return not _can_restart_in_place(context, replica.old)


def _can_restart_in_place(context: ReconcileContext, pod: Pod | None) -> bool:
    """Whether a pod runs, all of it, but for a command that failed and waits for a restart."""
    if pod is None or pod.deleting is not None or pod_cleanup.is_stop_requested(pod):
        return False
    if pod.node in context.observed.lost_nodes or not (
        pod.awaits_in_place_restart or pod.phase == "Running"
    ):
        return False
    main = in_place_pods.main_container(context.workload, pod)
    return all(
        each.is_init
        or each.state == "Running"
        or (pod.awaits_in_place_restart and each.name == main)
        for each in pod.containers
    )


def _is_waiting(context: ReconcileContext, pod: Pod) -> bool:
    """Whether its processes have ended, by a recent report."""
    report = in_place_pods.current_report(pod, context.observed.reports.in_place.get(pod.name))
    return report is not None and report.ended and context.now - report.received_at <= _RECENT


def _start_attempt(context: ReconcileContext, pod: Pod) -> Patch:
    annotations = {labels.ATTEMPT: str(context.internal.wanted(pod.name))}
    return Patch(PODS, pod.name, pod.uid, {"metadata": {"annotations": annotations}})
