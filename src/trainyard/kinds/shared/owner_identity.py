"""The identity of a job or viewer: its children's names, labels and owner references follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared import child_names, labels
from trainyard.kinds.shared.job import Job
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass

_GENERATED = "xxxxx"
"""In a job that is only rendered, this stands for what a server appends to `generateName`."""


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """The identity of a job or viewer. `base` is the prefix of names, `<job>-<hash5>`."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    base: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of all of its pods."""

    @classmethod
    def of(cls, job: Job) -> OwnerIdentity:
        """The identity of a stored job, or of one that is only rendered, whose UID is empty."""
        meta = job.metadata
        name = meta.name or f"{meta.generate_name}{_GENERATED}"
        return cls(
            kind=job.kind,
            api_version=job.api_version,
            namespace=meta.namespace or "default",
            name=name,
            uid=meta.uid,
            base=child_names.base_name(name, meta.uid),
            annotations=annotations_of_pods(meta.annotations),
        )

    @property
    def resource(self) -> Resource:
        """The collection that holds the job."""
        return KINDS[self.kind].resource

    def labels(self) -> dict[str, str]:
        """The labels of all objects that belong to the job (decision 12)."""
        found = {
            labels.OWNER_NAME: self.name,
            labels.COMPONENT: self.kind.lower(),
            labels.COMPONENT_TYPE: labels.COMPONENT_TYPE_USER,
            labels.JOB_UID: self.uid,
        }
        if label := KINDS[self.kind].name_label:
            found[label] = self.name
        return found

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of an object that belongs to the job."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(),
            "ownerReferences": [self.owner_reference()],
        }

    def owner_reference(self) -> dict[str, Any]:
        """The reference that has the garbage collector delete objects with the job."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def annotations_of_pods(given: Mapping[str, str]) -> dict[str, str]:
    """Those of an owner's annotations that its pods have too."""
    return {name: given[name] for name in labels.OF_SUBMITTER if given.get(name)}
