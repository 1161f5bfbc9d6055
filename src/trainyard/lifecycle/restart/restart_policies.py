"""What each restart policy means: which ends of a replica are followed by a restart.

A policy is one row here, beside its name in `RestartPolicy`; nothing else in this package asks
for a policy by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainyard.kinds.shared.workload import (
    RESTARTABLE_CODES,
    FailureAction,
    ReplicaType,
    RestartPolicy,
    Workload,
)
from trainyard.lifecycle.internal_status import InternalStatus
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.restart import repeated_failures
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicyMeaning:
    """A restart policy. `allows` judges failures that are the replica's own.

    `depends_on_exit`: how a replica ended matters, so the cause of an incident must be certain
    before it is decided that nothing is restarted. `after_success`: an exit 0 is followed by a
    restart too.
    """

    allows: Callable[[Exit], bool]
    depends_on_exit: bool = False
    after_success: bool = False


MEANINGS: Mapping[RestartPolicy, RestartPolicyMeaning] = {
    RestartPolicy.ALWAYS: RestartPolicyMeaning(lambda end: True, after_success=True),
    RestartPolicy.ON_FAILURE: RestartPolicyMeaning(lambda end: True),
    RestartPolicy.NEVER: RestartPolicyMeaning(lambda end: False),
    RestartPolicy.EXIT_CODE: RestartPolicyMeaning(
        lambda end: end.code in RESTARTABLE_CODES, depends_on_exit=True
    ),
}


def meaning_of(replica_type: ReplicaType) -> RestartPolicyMeaning:
    """What the policy of a type means."""
    return MEANINGS[replica_type.policy]


def may_restart(context: ReconcileContext, internal: InternalStatus, replica: Replica) -> bool:
    """Whether policy and budget allow this replica's end to be followed by a restart."""
    assert replica.exit is not None
    if fails_job(replica):
        return False
    if replica.exit.free:  # decision 24: what was taken away comes back whatever the policy
        return True
    if not _allows(replica) or not _has_budget(context.workload, internal, replica):
        return False
    return not repeated_failures.is_in_vain(context, replica)


def restarts_after_success(workload: Workload, internal: InternalStatus, replica: Replica) -> bool:
    """Whether an exit 0 is followed by a restart; never where that exit ends the job.

    Decision 23: with the budget spent it counts as succeeded.
    """
    return (
        replica.state is State.SUCCEEDED
        and meaning_of(replica.type).after_success
        and workload.restart_after_success
        and replica.key != workload.deciding_replica
        and _has_budget(workload, internal, replica)
    )


def identifies_cause(replica: Replica) -> bool:
    """Whether a replica hardly ever ends so because a peer has died: then it ends with 1."""
    end = replica.exit
    if end is None:
        return False
    by_itself = end.free and end.ruling is None
    is_named = end.ruling is not None and end.ruling.is_cause
    return by_itself or is_named or end.code in RESTARTABLE_CODES


def is_cause_certain(context: ReconcileContext, cause: Replica) -> bool:
    """Whether the cause of an incident may be acted upon before others can have been seen that
    came before it."""
    ruling = cause.exit.ruling if cause.exit else None
    if ruling is not None and ruling.taken:
        return True
    if ruling is not None and ruling.action is FailureAction.FAIL_JOB:
        return not ruling.by_code
    if context.workload.pod_failure_rules and not identifies_cause(cause):
        return False
    may = may_restart(context, context.internal, cause)
    if context.workload.restart_judge and not identifies_cause(cause):
        return may and repeated_failures.describe_lasting_cause(cause.exit)[1] != ""
    return may or not meaning_of(cause.type).depends_on_exit


def is_budget_spent(replica: Replica) -> bool:
    """Whether a replica that failed for good had been restarted, had there been budget left."""
    return replica.type.limit > 0 and _allows(replica) and not fails_job(replica)


def fails_job(replica: Replica) -> bool:
    """Whether a rule of `podFailurePolicy` fails the job for how this replica ended."""
    ruling = replica.exit.ruling if replica.exit else None
    return ruling is not None and ruling.action is FailureAction.FAIL_JOB


def _allows(replica: Replica) -> bool:
    """Whether a rule (decision 114), or else the policy, has this failure followed by a restart."""
    end = replica.exit or Exit()
    if end.ruling is not None and end.ruling.action is FailureAction.RESTART:
        return True
    return not end.is_permanent and meaning_of(replica.type).allows(end)


def _has_budget(workload: Workload, internal: InternalStatus, replica: Replica) -> bool:
    spent = internal.spent(replica.name, is_shared=workload.shared_budget)
    return spent < replica.type.limit
