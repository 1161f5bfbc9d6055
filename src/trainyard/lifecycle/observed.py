"""What was seen of a job's objects, reduced to what decisions need.

`decode()` takes an object as JSON gave it; nothing else of it is kept, so that the caches of many
thousand pods stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeVar

from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.pods.container_roles import INIT, SIDECAR, sidecars_of
from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.scheduling.gang_scheduling import pod_groups_of
from trainyard.kube.embedded_contract import STOPPED, parse_stopped
from trainyard.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES, Resource
from trainyard.lifecycle.node_check.node_check_annotation import AVOIDS
from trainyard.lifecycle.pod_reports import NO_REPORTS, PodReports
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Container:
    """The status of one container; `state` is Waiting, Running or Terminated."""

    name: str
    state: str
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    ended: datetime | None = None
    is_init: bool = False
    is_sidecar: bool = False
    """An init container that goes on beside the others: its end is not the replica's."""
    ready: bool = False
    started: bool | None = None
    """Whether its startup probe has succeeded; None where nothing tells."""
    since: datetime | None = None
    """Since when it runs."""
    last_exit_code: int | None = None
    last_message: str = ""
    """How its last run ended, if the kubelet has started it again or is about to."""

    def to_status(self) -> dict[str, Any]:
        """One element of `containers` in a job's status."""
        status: dict[str, Any] = {"name": self.name, "state": self.state}
        if self.is_init:
            status["role"] = SIDECAR if self.is_sidecar else INIT
        if self.exit_code is not None:
            status["exitCode"] = self.exit_code
        if self.reason:
            status["reason"] = self.reason
        return status

    @property
    def failed(self) -> bool:
        """Whether it ended with anything but 0."""
        return self.exit_code is not None and self.exit_code != 0


_ANNOTATIONS: tuple[str, ...] = (AVOIDS,)
"""Those that policies put on pods (`Policy.pod_edit`) and look for."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `deleting` is its deletionTimestamp: when its grace period is over."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    phase: str
    type: str = ""
    index: int = 0
    attempt: int = 1
    revision: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    """Those by which a policy knows pods that it has edited."""
    node: str = ""
    created: datetime | None = None
    started: datetime | None = None
    deleting: datetime | None = None
    grace_seconds: int | None = None
    deadline_seconds: int | None = None
    reason: str = ""
    message: str = ""
    scheduled: bool = False
    unschedulable: str = ""
    """The scheduler's message, if it could not place the pod."""
    disruption: str = ""
    """Reason of the DisruptionTarget condition: who took the pod away."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Type and status of each condition."""
    containers: tuple[Container, ...] = ()
    stopped: frozenset[int] = frozenset()
    """Processes that are stopped by a signal, as far as the node tells."""
    stopped_since: datetime | None = None
    awaits_in_place_restart: bool = False
    """Whether its command has failed, as told by what holds it for another attempt."""
    container_statuses: list[dict[str, Any]] = field(
        default_factory=list, compare=False, repr=False
    )
    """The containers as a job's status tells them: built once, compared in every pass."""

    def container(self, name: str) -> Container | None:
        """The status of the (non-init) container of that name."""
        for container in self.containers:
            if container.name == name and not container.is_init:
                return container
        return None

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Pod:
        """From a `v1` Pod."""
        meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
        label, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        conditions = {c["type"]: c for c in status.get("conditions") or ()}
        containers, statuses = _intern_containers(_decode_containers(spec, status))
        stopped = conditions.get(STOPPED, {})
        is_stopped = stopped.get("status") == "True"
        placed = conditions.get("PodScheduled", {})
        disrupted = conditions.get("DisruptionTarget", {})
        return cls(
            namespace=_interned(meta.get("namespace", "")),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta.get("resourceVersion", ""),
            owner_uid=_interned(_controller_uid(meta)),
            phase=_interned(status.get("phase", "Pending")),
            type=_interned(label.get(labels.REPLICA_TYPE, "")),
            index=_parse_int(label.get(labels.REPLICA_INDEX), 0),
            attempt=_parse_int(annotations.get(labels.ATTEMPT) or label.get(labels.ATTEMPT), 1),
            revision=_interned(annotations.get(labels.REVISION, "")),
            annotations=_interned(
                tuple((name, annotations[name]) for name in _ANNOTATIONS if name in annotations)
            ),
            node=_interned(spec.get("nodeName", "")),
            created=_parse_time(meta.get("creationTimestamp")),
            started=_parse_time(status.get("startTime")),
            deleting=parse(meta.get("deletionTimestamp")),
            grace_seconds=meta.get("deletionGracePeriodSeconds"),
            deadline_seconds=spec.get("activeDeadlineSeconds"),
            reason=status.get("reason", ""),
            message=status.get("message", ""),
            scheduled=bool(spec.get("nodeName")) or placed.get("status") == "True",
            unschedulable=placed.get("message", "") if placed.get("status") == "False" else "",
            disruption=disrupted.get("reason", "") if disrupted.get("status") == "True" else "",
            conditions=_interned(
                tuple((kind, c.get("status", "")) for kind, c in conditions.items())
            ),
            containers=containers,
            stopped=parse_stopped(stopped.get("message", "")) if is_stopped else frozenset(),
            stopped_since=parse(stopped.get("lastTransitionTime")) if is_stopped else None,
            container_statuses=statuses,
        )


@dataclass(frozen=True, slots=True)
class Owned:
    """Any other object of a job: a Service, Secret, ConfigMap, PodGroup or TensorBoard."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Kept of a NodePort Service, and of what is no core resource; empty for the others."""
    status: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Kept of what is no core resource."""
    deleting: bool = False
    generation: int = 0

    @classmethod
    def decode(cls, resource: Resource, obj: Mapping[str, Any]) -> Owned:
        """From any object with an owner."""
        meta = obj["metadata"]
        keeps = bool(resource.group)
        spec = obj.get("spec") or {}
        return cls(
            resource=resource,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta.get("resourceVersion", ""),
            owner_uid=_controller_uid(meta),
            spec=spec if keeps or spec.get("type") == "NodePort" else {},
            status=obj.get("status") or {} if keeps else {},
            deleting=bool(meta.get("deletionTimestamp")),
            generation=meta.get("generation") or 0,
        )


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor of Kueue: where pods that get it run."""

    name: str
    uid: str
    resource_version: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    namespace: str = ""

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Flavor:
        """From a ResourceFlavor."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta.get("resourceVersion", ""),
            node_labels=spec.get("nodeLabels") or {},
            tolerations=tuple(spec.get("tolerations") or ()),
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A creation that the server refused (quota, webhook, invalid), as the executor remembers it.

    The executor keeps one per resource and name, with `count` refusals in a row, and drops it when
    a creation of that name succeeds.
    """

    resource: Resource
    name: str
    code: int
    message: str
    at: datetime
    count: int = 1


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name that another owner's object holds, found when our creation met AlreadyExists.

    The executor keeps it until a creation of that name succeeds.
    """

    resource: Resource
    name: str
    owner: str
    """What holds it, for the message: `Service default/train-0`, `GenericJob train`."""
    until: datetime | None = None
    """When the creation may be tried again; None: not as long as this is known."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything seen of one owner's objects: those with the label `trainyard.dev/job-uid`."""

    pods: tuple[Pod, ...] = ()
    owned: tuple[Owned, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    lost_nodes: frozenset[str] = frozenset()
    """Nodes that do not answer (condition Ready is not True), or are gone."""
    probe_output: Mapping[str, str] = field(default_factory=dict)
    """What the startup probes of launches that have not started say, by the UID of their pods."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """Those of Kueue that are known, by name."""
    reports: PodReports = NO_REPORTS
    """What its pods have said by themselves."""
    since: datetime | None = None
    """Since when they are listened to."""


def _decode_kueue_workload(obj: Mapping[str, Any]) -> Owned:
    """Without its pod templates, which are large, and known."""
    spec = dict(obj.get("spec") or {})
    spec["podSets"] = [
        {"name": each.get("name", ""), "count": each.get("count", 1)}
        for each in spec.get("podSets") or ()
    ]
    return Owned.decode(kueue_workload.WORKLOADS, {**obj, "spec": spec})


def observed_resources(
    settings: Settings,
) -> Mapping[Resource, Callable[[Mapping[str, Any]], Pod | Owned]]:
    """What to watch of jobs that are handed to its gang scheduler, and how to decode it."""
    groups = pod_groups_of(settings)
    viewers = (kind.resource for kind in KINDS.values() if kind.is_viewer)
    owned = (SERVICES, SECRETS, CONFIG_MAPS, *((groups,) if groups else ()), *viewers)
    found: dict[Resource, Callable[[Mapping[str, Any]], Pod | Owned]] = {PODS: Pod.decode}
    found |= {each: partial(Owned.decode, each) for each in owned}
    if settings.gang_backend is GangBackend.KUEUE:
        found[kueue_workload.WORKLOADS] = _decode_kueue_workload
    return found


def _controller_uid(meta: Mapping[str, Any]) -> str:
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return ""


def _parse_int(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


# The pods of a job come one after another and have much in common, which is kept once: a seventh of
# the memory of a cache.
_parse_time = lru_cache(maxsize=1024)(parse)


@lru_cache(maxsize=1024)
def _interned(value: H) -> H:
    """The first of equal values."""
    return value


@lru_cache(maxsize=1024)
def _intern_containers(
    containers: tuple[Container, ...],
) -> tuple[tuple[Container, ...], list[dict[str, Any]]]:
    """The first of equal containers, and how a job's status tells them."""
    return containers, [container.to_status() for container in containers]


def _decode_containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Container, ...]:
    initial = status.get("initContainerStatuses") or ()
    sidecars = sidecars_of(spec) if initial else frozenset()
    return (
        *(_decode_container(c, True, c["name"] in sidecars) for c in initial),
        *(_decode_container(c, False, False) for c in status.get("containerStatuses") or ()),
    )


def _decode_container(status: Mapping[str, Any], is_init: bool, is_sidecar: bool) -> Container:
    state = status.get("state") or {}
    last = (status.get("lastState") or {}).get("terminated") or {}
    if ended := state.get("terminated"):
        return Container(
            name=status["name"],
            state="Terminated",
            exit_code=ended.get("exitCode", 0),
            reason=ended.get("reason", ""),
            message=ended.get("message", ""),
            ended=_parse_time(ended.get("finishedAt")),
            is_init=is_init,
            is_sidecar=is_sidecar,
        )
    waiting = state.get("waiting") or {}
    return Container(
        name=status["name"],
        state="Running" if "running" in state else "Waiting",
        reason=waiting.get("reason", ""),
        message=waiting.get("message", ""),
        is_init=is_init,
        is_sidecar=is_sidecar,
        ready=bool(status.get("ready")),
        started=status.get("started"),
        since=_parse_time((state.get("running") or {}).get("startedAt")),
        last_exit_code=last.get("exitCode"),
        last_message=last.get("message", ""),
    )
