"""Jobs that Kueue admits: what the job's Workload says of them and of their pods.

Decisions 170 and 171: a job has pods only while its Workload is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.workload import Manifest, Workload, WorkloadRequest
from trainyard.kube.object_conditions import find_condition
from trainyard.lifecycle.observed import Flavor, Observed, Owned
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """Where a job stands in its queue.

    `current` is the Workload that counts, `pending` a slice that is to replace it once there is
    room, `obsolete` are others that have had their time.
    """

    request: WorkloadRequest
    """What the job wants, whatever it has been given."""
    current: Owned | None = None
    pending: Owned | None = None
    obsolete: tuple[Owned, ...] = ()
    taken: frozenset[str] = frozenset()
    """Names of all Workloads that are there."""

    @property
    def is_admitted(self) -> bool:
        """Whether the job may have pods."""
        return self.current is not None and is_admitted(self.current)

    @property
    def next_name(self) -> str:
        """The first free name behind all others."""
        if not self.taken:
            return self.request.name
        number = max(_number(self.request.name, name) for name in self.taken) + 1
        return f"{self.request.name}-{number}"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """What an admission adds to the pods of a type."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    is_gated: bool = False
    """Kueue tells each pod its place by itself, and removes the gate then."""

    def put(self, pod: Manifest) -> Manifest:
        """The pod with all of it."""
        metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
        metadata["labels"] = {**(metadata.get("labels") or {}), **self.labels}
        if self.annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **self.annotations}
        if self.node_selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        has = list(spec.get("tolerations") or ())
        if more := [dict(each) for each in self.tolerations if each not in has]:
            spec["tolerations"] = [*has, *more]
        if self.is_gated:
            gates = spec.get("schedulingGates") or ()
            spec["schedulingGates"] = [*gates, {"name": f"{kueue_workload.GROUP}/topology"}]
        return {**pod, "metadata": metadata, "spec": spec}


# What the Workload says.


def is_true(owned: Owned, kind: str) -> bool:
    """Whether a condition is True."""
    return find_condition(owned.status, kind).get("status") == "True"


def is_admitted(owned: Owned) -> bool:
    """Whether pods may run by this Workload: one that has been replaced holds until its slice is
    admitted, as Kueue writes the two one after the other."""
    is_over = is_true(owned, "Finished") and not _is_replaced(owned)
    return not (owned.deleting or is_over or is_true(owned, "Evicted")) and is_true(
        owned, "Admitted"
    )


def _is_replaced(owned: Owned) -> bool:
    return find_condition(owned.status, "Finished").get("reason") == "WorkloadSliceReplaced"


def find_admission(workload: Workload, observed: Observed) -> Admission | None:
    """Sort the job's Workloads; None for a job that is not handed to Kueue."""
    request = workload.request
    if request is None:
        return None
    found = [
        owned
        for owned in observed.owned
        if owned.resource == request.resource and owned.owner_uid == workload.uid
    ]
    found.sort(key=lambda owned: _number(request.name, owned.name))
    live = [each for each in found if not each.deleting and not is_true(each, "Finished")]
    slices = [each for each in live if not is_true(each, "Evicted")]
    admitted = [each for each in live if is_admitted(each)]
    if slices and not admitted:
        before = found[: found.index(slices[-1])]
        admitted = [each for each in before if _is_replaced(each) and is_admitted(each)]
    # Without an admission the one counts that has, or had, quota: it may be still to be given back.
    reserved = [each for each in live if is_true(each, "QuotaReserved")]
    current = next(reversed(admitted or reserved or live), None)
    behind: list[Owned] = []
    if admitted and current is not None:
        behind = [each for each in live if found.index(each) > found.index(current)]
    pending = behind[-1] if behind else None
    obsolete = [each for each in found if each not in (current, pending) and not each.deleting]
    taken = frozenset(each.name for each in found)
    return Admission(request, current, pending, tuple(obsolete), taken)


def _number(base: str, name: str) -> int:
    """0 of the first Workload of a job, and so on."""
    rest = name.removeprefix(f"{base}-")
    return int(rest) if rest.isdecimal() and rest != name else 0


def at_admitted_size(workload: Workload, admission: Admission) -> Workload:
    """An elastic job with no more replicas than were admitted."""
    if workload.with_size is None or admission.current is None or not admission.is_admitted:
        return workload
    size = sum(_admitted_counts(admission.current).values())
    return workload.with_size(size) if size < workload.replicas else workload


def counts_of(owned: Owned) -> dict[str, int]:
    """Replicas by type, as a Workload asks for them."""
    return {each["name"]: each["count"] for each in owned.spec.get("podSets") or ()}


def _admitted_counts(owned: Owned) -> dict[str, int]:
    counts = counts_of(owned)
    for each in _assignments(owned):
        # It stays as it was at the admission where a slice has shrunk since.
        counts[each["name"]] = min(each.get("count", counts[each["name"]]), counts[each["name"]])
    return counts


def _assignments(owned: Owned) -> Sequence[Mapping[str, Any]]:
    admission = owned.status.get("admission") or {}
    names = counts_of(owned)
    return [each for each in admission.get("podSetAssignments") or () if each["name"] in names]


def pod_placements(
    standing: Admission | None, observed: Observed
) -> tuple[Mapping[str, PodPlacement], tuple[str, ...]]:
    """What the admission says of pods by their type; flavors of which nothing is known."""
    owned, flavors = standing.current if standing else None, observed.flavors
    found: dict[str, PodPlacement] = {}
    unknown: set[str] = set()
    if owned is None:
        return found, ()
    for each in _assignments(owned):
        names = sorted(set((each.get("flavors") or {}).values()))
        unknown.update(name for name in names if name not in flavors)
        known = [flavors[name] for name in names if name in flavors]
        found[each["name"]] = _placement(owned, each, known)
    return found, tuple(sorted(unknown))


def _placement(
    owned: Owned, assigned: Mapping[str, Any], flavors: Sequence[Flavor]
) -> PodPlacement:
    name = assigned["name"]
    labels = {kueue_workload.POD_SET: name}
    notes: dict[str, str] = {}
    where: dict[str, str] = {}
    tolerations: list[Mapping[str, Any]] = []
    for flavor in flavors:
        where |= flavor.node_labels
        tolerations += flavor.tolerations
    for check in owned.status.get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == name:
                labels |= update.get("labels") or {}
                notes |= update.get("annotations") or {}
                where |= update.get("nodeSelector") or {}
                tolerations += update.get("tolerations") or ()
    is_gated = bool(assigned.get("topologyAssignment"))
    if is_gated:  # by these Kueue finds the pods that it is to place
        notes[f"{kueue_workload.GROUP}/workload"] = owned.name
    return PodPlacement(labels, notes, where, tuple(tolerations), is_gated)


# In words.


def describe_wait(admission: Admission) -> str:
    """What a job that is not admitted waits for."""
    owned = admission.current
    if owned is None:
        name = admission.next_name
        return f"waits for admission by Kueue: Workload {name} is being created"
    intro = f"waits for admission by Kueue: Workload {owned.name}, queue {admission.request.queue}"
    return f"{intro}: {_describe_reason(owned)}"


def _describe_reason(owned: Owned) -> str:
    evicted, reserved = (
        find_condition(owned.status, "Evicted"),
        find_condition(owned.status, "QuotaReserved"),
    )
    if owned.spec.get("active") is False:
        return "it is deactivated (spec.active is false)" + _quote_message(evicted)
    if evicted.get("status") == "True":
        later = (owned.status.get("requeueState") or {}).get("requeueAt")
        again = f"; it is queued again at {later}" if later else ""
        return f"it was evicted ({evicted.get('reason')}): {evicted.get('message', '')}{again}"
    if reserved.get("status") == "True":
        checks = [
            f"{each['name']} ({each.get('state')}{_quote_message(each)})"
            for each in owned.status.get("admissionChecks") or ()
            if each.get("state") != "Ready"
        ]
        return f"quota is reserved, and checks are not ready: {', '.join(checks) or 'none is told'}"
    message = reserved.get("message")
    return message or "Kueue has not looked at it yet; is there a LocalQueue of that name?"


def _quote_message(condition: Mapping[str, Any]) -> str:
    return f": {condition['message']}" if condition.get("message") else ""
