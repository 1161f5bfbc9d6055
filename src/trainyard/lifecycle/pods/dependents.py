"""Objects beside the pods: Services, Secrets, ConfigMaps, a PodGroup, a viewer.

Each is created where it is missing, and never changed. A name that somebody else's object holds
is told, never taken over (decision 11), and tried again; where an object has a second name, it
takes that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainyard.kinds.shared.workload import Dependent, Lifetime, Manifest, Workload
from trainyard.kube.resources import Resource
from trainyard.lifecycle.actions import Create, Delete
from trainyard.lifecycle.observed import Conflict, Observed, Owned
from trainyard.schema.dataclass import dataclass

POD_GROUPS = "podgroups"


@dataclass(frozen=True, slots=True)
class Needs:
    """What is to be created, which names are taken, and the PodGroup that pods join."""

    creates: tuple[Create, ...]
    conflicts: tuple[Conflict, ...]
    """Names that no pod is created without."""
    pod_group: str
    relied_on: tuple[Create, ...]
    """Those of `creates` that no pod is created without: all but a viewer, and what is optional."""
    optional: tuple[Create, ...] = ()
    """Those of `creates` that the job can do without."""

    @property
    def complete(self) -> bool:
        """Whether everything is there that is not optional."""
        return len(self.creates) == len(self.optional)


def find_needs(workload: Workload, observed: Observed, *, paused: bool) -> Needs:
    """Compare what a job needs beside its pods with what it has."""
    present = {
        (owned.resource, owned.name): owned
        for owned in observed.owned
        if owned.owner_uid == workload.uid
    }
    taken = {(conflict.resource, conflict.name): conflict for conflict in observed.conflicts}
    creates, relied_on, optional, conflicts, pod_group = [], [], [], [], ""
    for dependent in workload.dependents:
        name = _present_name(dependent, present)
        if not name and not (paused and dependent.lifetime is Lifetime.UNPAUSED):
            name, conflict = _free_name(dependent, taken)
            creates.append(_create(dependent, name))
            if dependent.is_optional:
                optional.append(creates[-1])
            elif not dependent.status_field:
                relied_on.append(creates[-1])
                conflicts += [conflict] if conflict is not None else []
        if dependent.resource.plural == POD_GROUPS:
            pod_group = name
    return Needs(tuple(creates), tuple(conflicts), pod_group, tuple(relied_on), tuple(optional))


def delete_unpaused_only(workload: Workload, observed: Observed) -> list[Delete]:
    """What goes while the job is paused."""
    # Decisions 29 and 35: the PodGroup; Services, Secrets and ConfigMaps stay.
    resources = {d.resource for d in workload.dependents if d.lifetime is Lifetime.UNPAUSED}
    return [
        Delete(owned.resource, owned.name, owned.uid)
        for owned in observed.owned
        if owned.resource in resources and owned.owner_uid == workload.uid and not owned.deleting
    ]


def _present_name(dependent: Dependent, present: dict[tuple[Resource, str], Owned]) -> str:
    """The name that the object has; an object on its way out still holds its name."""
    for name in (dependent.name, dependent.alternative):
        if (dependent.resource, name) in present:
            return name
    return ""


def _free_name(
    dependent: Dependent, taken: dict[tuple[Resource, str], Conflict]
) -> tuple[str, Conflict | None]:
    conflict = taken.get((dependent.resource, dependent.name))
    if conflict is None:
        return dependent.name, None
    if dependent.alternative and (dependent.resource, dependent.alternative) not in taken:
        return dependent.alternative, None
    return dependent.name, conflict


def _create(dependent: Dependent, name: str) -> Create:
    build: Callable[[], Manifest] = partial(dependent.manifest, name)
    return Create(dependent.resource, name, build, dependent.generated)
