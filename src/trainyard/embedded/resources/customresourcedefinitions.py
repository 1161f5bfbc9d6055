"""The CustomResourceDefinitions of our kinds: part of the program, so to be read only."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from trainyard.embedded.clock import now_text
from trainyard.embedded.resources.columns import NAME, Column, at
from trainyard.embedded.resources.resource import READ_VERBS, Object, Served
from trainyard.kinds.table import KINDS
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS


class _Definitions(Served):
    def initial(self) -> Sequence[Object]:
        """The definitions as if they had been created and accepted now."""
        now = now_text()
        return [_established(kind.crd, now) for kind in KINDS.values()]


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


SERVED = _Definitions(
    CUSTOM_RESOURCE_DEFINITIONS,
    order=130,
    short_names=("crd", "crds"),
    verbs=READ_VERBS,
    printed=(NAME, Column("Created At", at("metadata.creationTimestamp"))),
)
