"""CustomResourceDefinitions of the custom kinds that the cluster was composed with, read only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import field

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.resources.printer_columns import NAME, Column, at
from trainyard.embedded.resources.resource import READ_VERBS, Object, Served
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True)
class _Definitions(Served):
    extension: Extension = field(kw_only=True)

    def initial_objects(self) -> Sequence[Object]:
        """The definitions as if they had been created and accepted now."""
        now = now_text()
        return [_established(kind.load_definition(), now) for kind in self.extension.load_kinds()]


def _established(definition: Object, now: str) -> Object:
    name = definition["metadata"]["name"]
    spec = definition["spec"]
    reasons = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
    rest = {"message": "", "lastTransitionTime": now}
    conditions = [
        {"type": type_, "status": "True", "reason": reason, **rest}
        for type_, reason in reasons.items()
    ]
    return {
        **definition,
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {
            **definition["metadata"],
            "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
            "resourceVersion": "1",
            "creationTimestamp": now,
        },
        "status": {
            "acceptedNames": spec["names"],
            "conditions": conditions,
            "storedVersions": [version["name"] for version in spec["versions"]],
        },
    }


def served(extension: Extension) -> Iterator[Served]:
    """The one resource; its objects are the definitions of an extension."""
    yield _Definitions(
        CUSTOM_RESOURCE_DEFINITIONS,
        order=130,
        short_names=("crd", "crds"),
        verbs=READ_VERBS,
        printer_columns=(NAME, Column("Created At", at("metadata.creationTimestamp"))),
        extension=extension,
    )
