"""What keeps a job from running although nothing of it has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.kinds.shared.reasons import ConditionReason, EventReason
from trainyard.kinds.shared.workload import Workload
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle import texts
from trainyard.lifecycle.dependents import Needs
from trainyard.lifecycle.observed import Conflict, Observed, Refusal
from trainyard.lifecycle.outcomes import State
from trainyard.lifecycle.replicas import Replica

NO_GANG = (
    "The job asks for scheduler.t9kScheduler, and this cluster has no scheduler that places pods "
    "all or none. Install one (T9k, Volcano, scheduler-plugins, Kueue) and name it in the "
    "operator's setting `gang-backend`, or remove `spec.scheduler`."
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Reason and message of the Running condition; `event` tells it as a Warning too."""

    reason: str
    message: str
    event: EventReason | None = None


def find(
    workload: Workload, needs: Needs, observed: Observed, replicas: Sequence[Replica]
) -> Trouble | None:
    """The first trouble, the gravest kind first."""
    if workload.needs_gang:
        return Trouble(ConditionReason.NO_GANG_SCHEDULER, NO_GANG, EventReason.NO_GANG_SCHEDULER)
    for conflict in needs.conflicts:
        return _conflict(conflict)
    if observed.conflicts or observed.refusals:
        missing = _missing(needs, replicas)
        for conflict in observed.conflicts:
            if conflict.resource == PODS and (PODS, conflict.name) in missing:
                return _conflict(conflict)
        for refusal in observed.refusals:
            if (refusal.resource, refusal.name) in missing:
                return _refusal(refusal)
    for replica in replicas:
        pod = replica.pod
        if pod is not None and pod.unschedulable and replica.state is State.CREATING:
            text = f"Pod[{pod.name}] cannot be scheduled: {pod.unschedulable}"
            return Trouble(ConditionReason.UNSCHEDULABLE, text)
    return None


def _missing(needs: Needs, replicas: Sequence[Replica]) -> set[tuple[Resource, str]]:
    """What is still to be created: what was refused once may be there, or not wanted, by now."""
    pods = {(PODS, r.name) for r in replicas if r.pod is None}
    return pods | {(create.resource, create.name) for create in needs.creates}


def _conflict(conflict: Conflict) -> Trouble:
    text = f"{texts.name_taken(conflict)}, or give the job another name."
    return Trouble(ConditionReason.NAME_CONFLICT, text, EventReason.NAME_CONFLICT)


def _refusal(refusal: Refusal) -> Trouble:
    text = texts.refused(refusal)
    return Trouble(ConditionReason.CREATION_REFUSED, text, EventReason.CREATION_REFUSED)
