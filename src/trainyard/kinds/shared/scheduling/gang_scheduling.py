"""Gang scheduling, all pods or none: what each scheduler needs (decision 37).

T9k: a PodGroup that labels name. Volcano (scheduling.volcano.sh/v1beta1), scheduler-plugins
(scheduling.x-k8s.io/v1alpha1) and Kubernetes itself (scheduling.k8s.io, 1.36 and newer): a PodGroup
of their own. Kueue: nothing on pods, but a Workload for the job (`kueue_workload.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from trainyard.kinds.podgroup import POD_GROUPS
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.run_policy import SchedulePolicy, T9kScheduler
from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.workload import Dependent, Lifetime, Manifest
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import format_path

VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
PLUGINS_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NATIVE_POD_GROUPS = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup")
    for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
"""The newest first, a beta of 1.37. What is written here is the same in all of them. 1.35 had no
PodGroups yet (decision 236)."""
POD_GROUPS_OF: Mapping[GangBackend, Resource] = {
    GangBackend.T9K: POD_GROUPS,
    GangBackend.VOLCANO: VOLCANO_POD_GROUPS,
    GangBackend.SCHEDULER_PLUGINS: PLUGINS_POD_GROUPS,
    GangBackend.KUBERNETES: NATIVE_POD_GROUPS[0],
}
"""The PodGroups of schedulers that have such objects."""

_KEPT = "priorityClassName"
"""A template's own counts."""


def pod_groups_of(settings: Settings) -> Resource | None:
    """The PodGroups of jobs with these settings, in the version that the cluster serves."""
    groups = POD_GROUPS_OF.get(settings.gang_backend)
    if groups in NATIVE_POD_GROUPS and settings.pod_groups_version:
        return groups._replace(version=settings.pod_groups_version)
    return groups


@dataclass(frozen=True, slots=True)
class Membership:
    """What a pod has as a member of a group; nothing with the default scheduler."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gang:
    """How a job is scheduled all or none, through a queue."""

    identity: OwnerIdentity
    backend: GangBackend
    queue: str
    priority: int
    min_member: int
    priority_class: str = ""
    is_ranked: bool = False
    """Whether the job sets a priority."""
    pod_groups: Resource | None = None
    """The backend's PodGroups, if it has such objects."""

    def membership(self, role: str, group: str) -> Membership:
        """Membership of a pod of the replica type `role` in the PodGroup `group`."""
        match self.backend:
            case GangBackend.T9K:
                marks = {labels.GROUP_NAME: group, labels.QUEUE: self.queue, labels.ROLE: role}
                return Membership(labels=marks, spec=_scheduled_by(labels.T9K_SCHEDULER_NAME))
            case GangBackend.VOLCANO:
                note = {"scheduling.k8s.io/group-name": group}
                return Membership(annotations=note, spec=self._ranked(_scheduled_by("volcano")))
            case GangBackend.SCHEDULER_PLUGINS:
                mark = {"scheduling.x-k8s.io/pod-group": group}
                spec = self._ranked(_scheduled_by("scheduler-plugins-scheduler"))
                return Membership(labels=mark, spec=spec)
            case GangBackend.KUBERNETES:
                return Membership(spec=self._ranked({"schedulingGroup": {"podGroupName": group}}))
            case _:
                return Membership()

    def overridden(self, role: str, template: Mapping[str, Any]) -> Iterator[str]:
        """What members of the replica type do not have of their template."""
        member, metadata = self.membership(role, ""), template.get("metadata") or {}
        for path, ours, theirs in (
            (("metadata", "labels"), member.labels, metadata.get("labels")),
            (("metadata", "annotations"), member.annotations, metadata.get("annotations")),
            (("spec",), member.spec, template.get("spec")),
        ):
            for key, value in ours.items():
                given = (theirs or {}).get(key)
                if given and given != value and key != _KEPT:
                    text = f"is ignored: the scheduler {self.backend} places the members of a gang"
                    yield f"template of {role}: {format_path((*path, key))}: {text}"

    def _ranked(self, spec: dict[str, Any]) -> dict[str, Any]:
        return spec | ({"priorityClassName": self.priority_class} if self.priority_class else {})

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the job asks for and this scheduler does not do (decision 175)."""
        knows_numbers = self.backend in (GangBackend.T9K, GangBackend.KUEUE, GangBackend.NONE)
        if knows_numbers or self.priority_class or not self.is_ranked:
            return ()
        text = (
            f"spec.scheduler.t9kScheduler.priority: {self.priority} has no effect: the scheduler "
            f"{self.backend} knows priority classes only, and the operator's setting "
            "priorityClasses maps none to it"
        )
        return (text,)

    def dependents(self) -> tuple[Dependent, ...]:
        """The PodGroup, if the scheduler has such an object."""
        resource = self.pod_groups
        if resource is None:
            return ()
        return (
            Dependent(
                resource=resource,
                name=self.identity.name,
                alternative=self.identity.base,
                manifest=lambda name: self._pod_group(resource, name),
                lifetime=Lifetime.UNPAUSED,
            ),
        )

    def _pod_group(self, resource: Resource, name: str) -> Manifest:
        spec: dict[str, object] = {"minMember": self.min_member}
        if resource == POD_GROUPS:
            spec |= {"queue": self.queue, "priority": self.priority}
        elif resource == VOLCANO_POD_GROUPS:
            spec |= self._ranked({"queue": self.queue})
        elif resource in NATIVE_POD_GROUPS:
            spec = self._ranked({"schedulingPolicy": {"gang": {"minCount": self.min_member}}})
        return {
            "apiVersion": resource.api_version,
            "kind": "PodGroup",
            "metadata": self.identity.metadata(name),
            "spec": spec,
        }


def queue_membership(backend: GangBackend, queue: str | None) -> Membership:
    """What a single pod that waits in a queue has."""
    name = queue or labels.DEFAULT_QUEUE
    match backend:
        case GangBackend.T9K:
            return Membership({labels.QUEUE: name}, spec=_scheduled_by(labels.T9K_SCHEDULER_NAME))
        case GangBackend.VOLCANO:
            note = {"scheduling.volcano.sh/queue-name": name}
            return Membership(annotations=note, spec=_scheduled_by("volcano"))
        case GangBackend.KUEUE:
            return Membership({kueue_workload.QUEUE_NAME: name})
        case _:
            return Membership()


def _scheduled_by(scheduler: str) -> dict[str, Any]:
    return {"schedulerName": scheduler}


def gang_of(
    identity: OwnerIdentity,
    settings: Settings,
    scheduler: SchedulePolicy | None,
    *,
    min_member: int,
    marks: Mapping[str, str],
) -> Gang | None:
    """A job's gang, if it asks for one. Without a queue it waits in the one named `default`.

    `min_member`: how many pods must start together (decision 35). `marks`: the job's labels, by
    which users of Kueue name a queue (decision 170).
    """
    backend = settings.gang_backend
    asked = scheduler.t9k_scheduler if scheduler else None
    marks = marks if backend is GangBackend.KUEUE else {}
    named = marks.get(kueue_workload.QUEUE_NAME)
    if asked is None and named is None:
        return None
    asked = asked or T9kScheduler()
    queue = asked.queue or named or labels.DEFAULT_QUEUE
    priority_class = marks.get(kueue_workload.PRIORITY_CLASS) or settings.priority_class_of(
        asked.priority
    )
    is_set = "priority" in asked.model_fields_set
    groups = pod_groups_of(settings)
    return Gang(
        identity, backend, queue, asked.priority, min_member, priority_class, is_set, groups
    )
