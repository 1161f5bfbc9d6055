"""What keeps a job from running although nothing of it has failed."""

from __future__ import annotations

from collections.abc import Sequence, Set

from trainyard.kinds.shared.reasons import ConditionReason, EventReason
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle import texts
from trainyard.lifecycle.kueue import kueue_admission
from trainyard.lifecycle.observed import Conflict, Observed, Refusal
from trainyard.lifecycle.pods.dependents import Needs
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import State
from trainyard.lifecycle.replica_view import Replica
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NotRunningReason:
    """Reason and message of the Running condition; `event` tells it as a Warning too."""

    reason: str
    message: str
    event: EventReason | None = None


def admission_reason(
    context: ReconcileContext, needs: Needs, standing: kueue_admission.Admission, evicted: bool
) -> NotRunningReason:
    """Why a job is not admitted, or now is no more; before that, what keeps it from asking."""
    reason = _creation_reason(context, needs, ())  # its pods are not wanted
    if reason is not None and not evicted:
        return reason
    return NotRunningReason(
        ConditionReason.WAITS_FOR_ADMISSION, kueue_admission.describe_wait(standing)
    )


def flavor_reason(
    context: ReconcileContext, standing: kueue_admission.Admission | None
) -> NotRunningReason | None:
    """Pods cannot be created for want of what says where they run."""
    _, unknown = kueue_admission.pod_placements(standing, context.observed)
    if not unknown:
        return None
    reason, event = ConditionReason.FLAVOR_UNKNOWN, EventReason.FLAVOR_UNKNOWN
    return NotRunningReason(reason, texts.flavors_unknown(unknown), event)


def find_reason(context: ReconcileContext, needs: Needs) -> NotRunningReason | None:
    """The first trouble, the gravest kind first."""
    replicas = context.view.not_running
    if reason := _creation_reason(context, needs, replicas):
        return reason
    for replica in replicas:
        pod = replica.pod
        if pod is not None and pod.unschedulable and replica.state is State.CREATING:
            return NotRunningReason(ConditionReason.UNSCHEDULABLE, texts.unschedulable(pod))
    viewers = _missing_objects(needs, ()) & _viewer_objects(
        context
    )  # these keep nothing from running
    return _refusal_reason(context.observed, viewers)


def _creation_reason(
    context: ReconcileContext, needs: Needs, replicas: Sequence[Replica]
) -> NotRunningReason | None:
    """What of the job, or of the pods of these replicas, cannot be created."""
    if context.workload.needs_gang:  # pods placed one by one would wait for each other
        reason, event = ConditionReason.NO_GANG_SCHEDULER, EventReason.NO_GANG_SCHEDULER
        return NotRunningReason(reason, texts.NO_GANG, event)
    for conflict in needs.conflicts:
        return _conflict_reason(conflict)
    return _refusal_reason(
        context.observed, _missing_objects(needs, replicas) - _viewer_objects(context)
    )


def _viewer_objects(context: ReconcileContext) -> set[tuple[Resource, str]]:
    return {(d.resource, d.name) for d in context.workload.dependents if d.status_field}


def _missing_objects(needs: Needs, replicas: Sequence[Replica]) -> set[tuple[Resource, str]]:
    """What is still to be created: what was refused once may be there, or not wanted, by now."""
    pods = {(PODS, r.name) for r in replicas if r.pod is None}
    optional = {(create.resource, create.name) for create in needs.optional}
    return pods | {(c.resource, c.name) for c in needs.creates} - optional


def _refusal_reason(
    observed: Observed, missing: Set[tuple[Resource, str]]
) -> NotRunningReason | None:
    for conflict in observed.conflicts:
        if (conflict.resource, conflict.name) in missing:
            return _conflict_reason(conflict)
    for refusal in observed.refusals:
        if (refusal.resource, refusal.name) in missing:
            return _refused_reason(refusal)
    return None


def _conflict_reason(conflict: Conflict) -> NotRunningReason:
    text = f"{texts.name_taken_for_job(conflict)}."
    return NotRunningReason(ConditionReason.NAME_CONFLICT, text, EventReason.NAME_CONFLICT)


def _refused_reason(refusal: Refusal) -> NotRunningReason:
    text = texts.refused(refusal)
    return NotRunningReason(ConditionReason.CREATION_REFUSED, text, EventReason.CREATION_REFUSED)
