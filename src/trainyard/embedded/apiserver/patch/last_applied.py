"""The annotation in which kubectl's client-side apply records the configuration it applied last.

As in a kube-apiserver, kubectl's server-side apply may change what its client-side one has set,
and keeps the annotation, so that one can go back to the other.
"""

from __future__ import annotations

import json

import orjson

from trainyard.embedded.apiserver.patch import field_sets
from trainyard.embedded.apiserver.patch.field_sets import Fields
from trainyard.embedded.resources.metadata_rules import MAX_ANNOTATIONS_BYTES, annotations_size
from trainyard.embedded.resources.resource import Object

_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def applied_fields(live: Object, *, custom: bool) -> Fields:
    """The fields that were applied and still have that value."""
    text = (live["metadata"].get("annotations") or {}).get(_ANNOTATION, "")
    try:
        found = orjson.loads(text)
        if found["apiVersion"] != live["apiVersion"]:
            return {}
        part, present = (field_sets.owned_part(each, status=False) for each in (found, live))
        changed, removed = field_sets.compare(part, present, custom=custom)
        applied = field_sets.applied(part, custom=custom)
    except (ValueError, TypeError, KeyError, AttributeError):  # anybody may write annotations
        return {}
    return field_sets.minus(field_sets.minus(applied, changed), removed)


def update_annotation(merged: Object, wanted: Object) -> None:
    """Write the configuration that was applied now into the annotation, if there is one."""
    metadata = merged["metadata"]
    annotations = metadata.get("annotations") or {}
    if _ANNOTATION not in annotations:
        return
    given = {**wanted["metadata"]}
    own = given.get("annotations") or {}
    given["annotations"] = {key: own[key] for key in own if key != _ANNOTATION}
    text = json.dumps(
        {**wanted, "metadata": given},
        separators=(",", ":"),
        sort_keys=True,
        ensure_ascii=False,
    )
    metadata["annotations"] = {**annotations, _ANNOTATION: f"{text}\n"}
    if annotations_size(metadata) > MAX_ANNOTATIONS_BYTES:
        metadata["annotations"].pop(_ANNOTATION)
