"""What a pod template says and its pods do not have, because the controller decides it.

`check_overridden` tells it with the job; `WorkloadFactory` makes it so. A test builds pods of
templates with every field of Kubernetes' schema, and wants what is missing in them told here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_rules import ignored
from trainyard.schema.problems import Path, Problem

_KEPT_METADATA = ("labels", "annotations", "finalizers")
_METADATA = {
    "name": "pods are named after the job, their type and their index",
    "generateName": "pods are named after the job, their type and their index",
    "namespace": "pods are in the namespace of the job",
    "ownerReferences": "the job owns its pods",
}
_BY_SERVER = "the server sets it"
_BY_CONTROLLER = "the controller sets it"
_LABELS = (
    labels.OWNER_NAME,
    labels.COMPONENT,
    labels.COMPONENT_TYPE,
    labels.JOB_UID,
    labels.REPLICA_TYPE,
    labels.REPLICA_INDEX,
)
_HOST = "peers find a replica by the name of its pod, in the domain of the job"


def own_labels(marks: Mapping[str, str], of_kind: Collection[str]) -> dict[str, str]:
    """A template's labels without those that the controller sets; `of_kind`: those of its kind."""
    reserved = (*_LABELS, *of_kind)
    return {key: value for key, value in marks.items() if key not in reserved}


def own_annotations(notes: Mapping[str, str]) -> dict[str, str]:
    """A template's annotations without those that the controller sets."""
    return {key: value for key, value in notes.items() if key not in labels.ON_PODS}


def check_overridden(
    template: Mapping[str, Any],
    path: Path,
    *,
    policy: str,
    of_kind: Collection[str] = (),
    given: Mapping[str, str],
    has_pod_dns: bool = True,
) -> Iterator[Problem]:
    """Warnings about what the pods of a template do not have of it.

    `policy` is the restart policy of the replicas, `of_kind` are the labels that pods of this kind
    have, `given` the annotations of the job;
    `has_pod_dns`: whether its pods have a domain.
    """
    metadata = template.get("metadata") or {}
    here = (*path, "metadata")
    for field, value in metadata.items():
        if value and field not in _KEPT_METADATA:
            yield ignored((*here, field), _METADATA.get(field, _BY_SERVER))
    marks, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for key in marks.keys() - own_labels(marks, of_kind).keys():
        yield ignored((*here, "labels", key), _BY_CONTROLLER)
    for key in notes.keys() - own_annotations(notes).keys():
        yield ignored((*here, "annotations", key), _BY_CONTROLLER)
    for key in labels.OF_SUBMITTER:
        if given.get(key) and key in notes and notes[key] != given[key]:
            yield ignored((*here, "annotations", key), "the job's own counts")
    spec, here = template.get("spec") or {}, (*path, "spec")
    if spec.get("restartPolicy", policy) != policy:
        yield ignored((*here, "restartPolicy"), f"that of the replicas is {policy}")
    if spec.get("hostname"):
        yield ignored((*here, "hostname"), _HOST)
    if spec.get("subdomain") and has_pod_dns:
        yield ignored((*here, "subdomain"), _HOST)
