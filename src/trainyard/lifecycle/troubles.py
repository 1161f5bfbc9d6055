"""What keeps a job from running although nothing of it has failed."""

from __future__ import annotations

from collections.abc import Sequence, Set

from trainyard.kinds.shared.reasons import ConditionReason, EventReason
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle import queueing, texts
from trainyard.lifecycle.dependents import Needs
from trainyard.lifecycle.observed import Conflict, Observed, Refusal
from trainyard.lifecycle.outcomes import State
from trainyard.lifecycle.passes import Pass
from trainyard.lifecycle.replicas import Replica
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Trouble:
    """Reason and message of the Running condition; `event` tells it as a Warning too."""

    reason: str
    message: str
    event: EventReason | None = None


def of_queue(job: Pass, needs: Needs, standing: queueing.Standing, evicted: bool) -> Trouble:
    """Why a job is not admitted, or now is no more; before that, what keeps it from asking."""
    trouble = _of_creation(job, needs, ())  # its pods are not wanted
    if trouble is not None and not evicted:
        return trouble
    return Trouble(ConditionReason.WAITS_FOR_ADMISSION, queueing.why(standing))


def of_flavors(job: Pass, standing: queueing.Standing | None) -> Trouble | None:
    """Pods cannot be created for want of what says where they run."""
    _, unknown = queueing.places(standing, job.observed)
    if not unknown:
        return None
    reason, event = ConditionReason.FLAVOR_UNKNOWN, EventReason.FLAVOR_UNKNOWN
    return Trouble(reason, texts.flavors_unknown(unknown), event)


def find(job: Pass, needs: Needs) -> Trouble | None:
    """The first trouble, the gravest kind first."""
    replicas = job.view.not_running
    if trouble := _of_creation(job, needs, replicas):
        return trouble
    for replica in replicas:
        pod = replica.pod
        if pod is not None and pod.unschedulable and replica.state is State.CREATING:
            return Trouble(ConditionReason.UNSCHEDULABLE, texts.unschedulable(pod))
    viewers = _missing(needs, ()) & _viewers(job)  # these keep nothing from running
    return _refused(job.observed, viewers)


def _of_creation(job: Pass, needs: Needs, replicas: Sequence[Replica]) -> Trouble | None:
    """What of the job, or of the pods of these replicas, cannot be created."""
    if job.workload.needs_gang:  # decision 37
        reason, event = ConditionReason.NO_GANG_SCHEDULER, EventReason.NO_GANG_SCHEDULER
        return Trouble(reason, texts.NO_GANG, event)
    for conflict in needs.conflicts:
        return _conflict(conflict)
    return _refused(job.observed, _missing(needs, replicas) - _viewers(job))


def _viewers(job: Pass) -> set[tuple[Resource, str]]:
    return {(d.resource, d.name) for d in job.workload.dependents if d.told_as}


def _missing(needs: Needs, replicas: Sequence[Replica]) -> set[tuple[Resource, str]]:
    """What is still to be created: what was refused once may be there, or not wanted, by now."""
    pods = {(PODS, r.name) for r in replicas if r.pod is None}
    optional = {(create.resource, create.name) for create in needs.optional}
    return pods | {(c.resource, c.name) for c in needs.creates} - optional


def _refused(observed: Observed, missing: Set[tuple[Resource, str]]) -> Trouble | None:
    for conflict in observed.conflicts:
        if (conflict.resource, conflict.name) in missing:
            return _conflict(conflict)
    for refusal in observed.refusals:
        if (refusal.resource, refusal.name) in missing:
            return _refusal(refusal)
    return None


def _conflict(conflict: Conflict) -> Trouble:
    text = f"{texts.name_taken(conflict)}, or give the job another name."
    return Trouble(ConditionReason.NAME_CONFLICT, text, EventReason.NAME_CONFLICT)


def _refusal(refusal: Refusal) -> Trouble:
    text = texts.refused(refusal)
    return Trouble(ConditionReason.CREATION_REFUSED, text, EventReason.CREATION_REFUSED)
