"""The end of a job: how it ended, and how that is told."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.kinds.shared.workload import Scope
from trainyard.kube.resources import PODS
from trainyard.lifecycle import texts
from trainyard.lifecycle.completion import completion_rules
from trainyard.lifecycle.elastic import elastic_size
from trainyard.lifecycle.internal_status import InternalStatus, attempt_end
from trainyard.lifecycle.last_seen import last_seen
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.replica_state import MAX_DURATION, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import single_restarts
from trainyard.lifecycle.restart.restart_policies import (
    fails_job,
    is_budget_spent,
    restarts_after_success,
)

UNPROCESSABLE = 422
"""HTTP status with which an API server says that an object is invalid."""


SUCCESS = Verdict(True, ConditionReason.SUCCEEDED, texts.FINISHED)


def success(
    context: ReconcileContext,
    internal: InternalStatus,
    restarted: AbstractSet[str],
    failed: Sequence[Replica] = (),
) -> Verdict | None:
    """Whether the replicas that succeeded make the job a success.

    `restarted`: pod names of replicas that run again, so that their exit 0 does not count yet.
    `failed`: those that failed for good, without which an elastic job goes on.
    """
    ended = context.view.not_running
    done = {r.key for r in ended if r.state is State.SUCCEEDED and r.name not in restarted}
    out = {r.key for r in ended if elastic_size.is_dispensable(context.workload, internal, r)}
    if context.workload.elastic is not None:
        out.update(r.key for r in failed)
    return SUCCESS if completion_rules.has_succeeded(context.workload, done, out) else None


def success_of_deciding_replica(context: ReconcileContext) -> Verdict | None:
    """Whether the one replica that decides, where one does, has ended with 0."""
    if context.workload.deciding_replica is None:
        return None
    return success(context, context.internal, frozenset())


def success_before_pause(context: ReconcileContext) -> Verdict | None:
    """The same when a job is paused: what would have run again has not succeeded."""
    again = {
        r.name
        for r in context.view.not_running
        if restarts_after_success(context.workload, context.internal, r)
    }
    return success(context, context.internal, again)


def success_after_restarts(context: ReconcileContext) -> Verdict | None:
    """Decision 22: it wins over any failure that holds at the same time."""
    restarts = context.restarts
    return success(context, restarts.internal, restarts.restarted, restarts.failed_for_good)


def removed_by_queue(context: ReconcileContext) -> Verdict | None:
    """A queue's maxDuration is the end of a job, not a disruption (decision 26)."""
    for replica in context.view.not_running:
        if replica.state is State.TAKEN or replica.state is State.FAILED:
            pod = replica.pod
            if pod is not None and MAX_DURATION in pod.disruption:
                message = texts.queue_limit(context.workload, replica)
                return Verdict(False, ConditionReason.QUEUE_MAX_DURATION, message, replica)
    return None


def pod_refused_as_invalid(context: ReconcileContext) -> Verdict | None:
    """A pod that the server calls invalid does not become valid by waiting (decision 10)."""
    for refusal in context.observed.refusals:
        if refusal.code == UNPROCESSABLE and refusal.resource == PODS:
            text = texts.invalid(context.workload.kind, context.workload.name, refusal.message)
            return Verdict(False, ConditionReason.INVALID_SPEC, text)
    return None


def failure_for_good(context: ReconcileContext) -> Verdict | None:
    """Whether the replicas that failed for good fail the job (decision 23)."""
    workload, restarts = context.workload, context.restarts
    failed = restarts.failed_for_good
    if not failed:
        return None
    keys = {replica.key for replica in failed}
    if rule := completion_rules.first_failed_rule(workload, keys):
        message = f"The job is failed with rule: {completion_rules.format_rule(rule)}"
        named = [replica for replica in failed if completion_rules.concerns(rule, replica.key)]
        return Verdict(False, ConditionReason.FAILED, message, _first_to_blame(named))
    # Decision 23: fail fast, unless it is elastic and enough remain.
    if elastic_size.can_go_on_without(workload, context.view, keys):
        return None
    if not workload.fail_fast and not completion_rules.is_success_impossible(workload, keys):
        return None
    cause = _first_to_blame(failed)
    repeat, same = restarts.repeats.get(cause.name), restarts.same(cause)
    if workload.restart_judge and same is not None:
        message = texts.failed_in_vain(workload, cause, same)
        return Verdict(False, ConditionReason.RESTARTS_IN_VAIN, message, cause, repeat)
    reason = ConditionReason.FAILED
    if is_budget_spent(cause):
        reason = ConditionReason.BACKOFF_LIMIT_EXCEEDED
    return Verdict(False, reason, texts.job_failure(workload, cause), cause, repeat)


def failure_by_pod_failure_rule(context: ReconcileContext) -> Verdict | None:
    """Whether a rule of `podFailurePolicy` fails the job (decision 114)."""
    cause = next((r for r in context.restarts.failed_for_good if fails_job(r)), None)
    if cause is None:
        return None
    message = texts.failed_by_rule(context.workload, cause)
    return Verdict(False, ConditionReason.POD_FAILURE_POLICY, message, cause)


def final_attempt_end(context: ReconcileContext, verdict: Verdict) -> dict[str, Any]:
    """How the attempt ended that was under way, as `status.attempts` tells it."""
    cause, now = verdict.cause, context.now
    if cause is None or cause.exit is None:
        return attempt_end(now, verdict.reason)
    if context.workload.scope is Scope.REPLICA or cause.type.restarts_alone:
        ended = single_restarts.finished_attempt(context.internal, cause, now)
    else:
        ended = attempt_end(now, cause.exit.reason or "Error", cause.name, cause.exit)
    if cause.exit.ruling is not None:
        ended["message"] = cause.exit.ruling.decided_last
    ended |= last_seen(context, cause)
    return ended | verdict.repeat.attempt_fields() if verdict.repeat is not None else ended


def _first_to_blame(failed: Sequence[Replica]) -> Replica:
    """The first of those that failed now: with the others gone before, the job went on."""
    fresh = (r for r in failed if r.entry is None or r.entry["phase"] != "Failed")
    return next(fresh, failed[0])
