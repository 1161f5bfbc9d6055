"""The end of a job: how it ended, and how that is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.kinds.shared import reasons
from trainyard.kinds.shared.reasons import ConditionReason
from trainyard.kinds.shared.workload import RestartPolicy, Workload
from trainyard.kube.resources import PODS
from trainyard.lifecycle import elastic, rules, texts
from trainyard.lifecycle.observed import Refusal
from trainyard.lifecycle.outcomes import MAX_DURATION, State
from trainyard.lifecycle.replicas import Replica, View
from trainyard.lifecycle.restarts import RESTARTABLE_CODES, Response

UNPROCESSABLE = 422
"""HTTP status with which an API server says that an object is invalid."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Success, or failure with its reason; `cause` is the replica to blame, if one is."""

    success: bool
    reason: str
    message: str
    cause: Replica | None = None


SUCCESS = Verdict(True, ConditionReason.SUCCEEDED, reasons.FINISHED)


def removed_by_queue(workload: Workload, view: View) -> Verdict | None:
    """A queue's maxDuration is the end of a job, not a disruption."""
    for replica in view.idle:
        if replica.state is State.TAKEN or replica.state is State.FAILED:
            pod = replica.pod
            if pod is not None and MAX_DURATION in pod.disruption:
                message = texts.queue_limit(workload, replica)
                return Verdict(False, ConditionReason.QUEUE_MAX_DURATION, message, replica)
    return None


def refused(workload: Workload, refusals: Sequence[Refusal]) -> Verdict | None:
    """A pod that the server calls invalid does not become valid by waiting."""
    for refusal in refusals:
        if refusal.code == UNPROCESSABLE and refusal.resource == PODS:
            text = f"{workload.kind} {workload.name} is invalid: {refusal.message}"
            return Verdict(False, ConditionReason.INVALID_SPEC, text)
    return None


def failure(workload: Workload, view: View, response: Response) -> Verdict | None:
    """Whether the replicas that failed for good fail the job."""
    lost = response.lost
    if not lost:
        return None
    keys = rules.lost_keys(lost)
    if rule := rules.failed_rule(workload, keys):
        message = reasons.failed_with_rule(rules.rule_text(rule))
        named = [replica for replica in lost if rules.names(rule, replica.key)]
        return Verdict(False, ConditionReason.FAILED, message, _to_blame(named))
    if elastic.goes_on(workload, view, keys):
        return None
    if not workload.fail_fast and not rules.hopeless(workload, keys):
        return None
    cause = _to_blame(lost)
    reason = ConditionReason.FAILED
    if _budget_spent(cause):
        reason = ConditionReason.BACKOFF_LIMIT_EXCEEDED
    return Verdict(False, reason, texts.job_failure(workload, cause), cause)


def _to_blame(lost: Sequence[Replica]) -> Replica:
    """The first of those that were lost now: with the others gone before, the job went on."""
    fresh = (r for r in lost if r.entry is None or r.entry["phase"] != "Failed")
    return next(fresh, lost[0])


def _budget_spent(cause: Replica) -> bool:
    """Whether the policy would have restarted it, if there had been anything left to spend."""
    policy, end = cause.type.policy, cause.exit
    if policy is RestartPolicy.NEVER or cause.type.limit == 0:
        return False
    return policy is not RestartPolicy.EXIT_CODE or (
        end is not None and end.code in RESTARTABLE_CODES
    )
