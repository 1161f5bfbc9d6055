"""The job's Workload for Kueue, with a pod set for each replica type (decision 170).

The controller writes the Workload itself, as the integrations inside Kueue do for their kinds, and
creates pods once it is admitted. So Kueue need not know our kinds, nor gate single pods.
https://kueue.sigs.k8s.io/docs/concepts/workload/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.workload import (
    Generated,
    Manifest,
    ReplicaKey,
    ReplicaType,
    WorkloadRequest,
)
from trainyard.kube.resources import Resource

GROUP = "kueue.x-k8s.io"
WORKLOADS = Resource(GROUP, "v1beta2", "workloads", "Workload")
FLAVORS = Resource(GROUP, "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
PRIORITY_CLASSES = Resource(
    GROUP, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)

QUEUE_NAME = f"{GROUP}/queue-name"
"""Label of a job: the LocalQueue, where `scheduler.t9kScheduler.queue` names none."""
PRIORITY_CLASS = f"{GROUP}/priority-class"
"""Label of a job: its WorkloadPriorityClass."""
JOB_UID = f"{GROUP}/job-uid"
POD_SET = f"{GROUP}/podset"
"""Label of a pod: its pod set."""
ELASTIC = f"{GROUP}/elastic-job"
REPLACES = f"{GROUP}/workload-slice-replacement-for"
MULTIKUEUE = f"{GROUP}/multikueue"
"""In `spec.managedBy`: Kueue sends the job to another cluster, once it is admitted here."""
PREBUILT = f"{GROUP}/prebuilt-workload-name"
"""Label of a job that MultiKueue copied from another cluster: the Workload copied with it."""

_TOPOLOGY = {
    f"{GROUP}/podset-required-topology": "required",
    f"{GROUP}/podset-preferred-topology": "preferred",
    f"{GROUP}/podset-unconstrained-topology": "unconstrained",
}
"""Annotations of a pod template, and the fields of a pod set's topologyRequest that they are.
https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/"""


def workload_request(
    identity: OwnerIdentity,
    *,
    queue: str,
    priority: int,
    priority_class: str,
    types: tuple[ReplicaType, ...],
    is_elastic: bool,
    prebuilt: str,
    pod: Callable[[ReplicaKey], Manifest],
    metadata: Callable[[str], Mapping[str, Any]],
) -> WorkloadRequest:
    """The Workload that a job asks Kueue to admit.

    `prebuilt`: the name of the Workload, if there is one already. `pod` builds a replica's pod;
    `metadata` returns that of a type's template as the user wrote it.
    """

    def build(name: str, counts: Mapping[str, int], replaces: str) -> Manifest:
        made = identity.metadata(name)
        made["labels"][JOB_UID] = identity.uid
        notes = {ELASTIC: "true"} if is_elastic else {}
        if replaces:
            notes[REPLACES] = f"{identity.namespace}/{replaces}"
        if notes:
            made["annotations"] = notes
        spec: dict[str, Any] = {"queueName": queue, "priority": priority}
        if priority_class:
            kind = {"group": GROUP, "kind": "WorkloadPriorityClass", "name": priority_class}
            spec["priorityClassRef"] = kind
        spec["podSets"] = [
            _pod_set(name, count, pod(ReplicaKey(name, 0)), metadata(name))
            for name, count in counts.items()
        ]
        return {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": made,
            "spec": spec,
        }

    return WorkloadRequest(
        resource=WORKLOADS,
        name=prebuilt or identity.base,
        takes_over_unowned=bool(prebuilt),
        queue=queue,
        counts={each.name: each.replicas for each in types if each.replicas or is_elastic},
        manifest=build,
        generated=Generated.KUEUE_PRIORITY if priority_class else Generated.NOTHING,
    )


def _pod_set(name: str, count: int, pod: Manifest, given: Mapping[str, Any]) -> dict[str, Any]:
    spec = dict(pod["spec"])
    # Each replica has a host name of its own.
    spec.pop("hostname", None)
    metadata = {
        field: dict(given[field]) for field in ("labels", "annotations") if given.get(field)
    }
    made = {"name": name, "count": count, "template": {"metadata": metadata, "spec": spec}}
    if request := _topology(given.get("annotations") or {}):
        made["topologyRequest"] = request
    return made


def _topology(annotations: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        field: annotations[key] for key, field in _TOPOLOGY.items() if key in annotations
    }
    if "unconstrained" in found:
        found["unconstrained"] = found["unconstrained"] == "true"
    return found
