"""The scale subresource of elastic jobs: `spec.replicas` is `spec.elastic.expectedReplicas`."""

from __future__ import annotations

from typing import Any

from trainyard.local.failures import bad_request
from trainyard.local.resources.served import Served

Object = dict[str, Any]


def to_scale(obj: Object) -> Object:
    """The Scale (autoscaling/v1) of a job."""
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    elastic = (obj.get("spec") or {}).get("elastic") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": elastic.get("expectedReplicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": status.get("selector", ""),
        },
    }


def from_scale(obj: Object, scale: Object, served: Served) -> Object:
    """`obj` (taken over) with the replicas of `scale`."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise bad_request(f"spec.replicas of a Scale is a number from 0, not {replicas!r}")
    spec = obj.setdefault("spec", {})
    if not isinstance(spec.get("elastic"), dict):
        name = obj["metadata"]["name"]
        raise bad_request(
            f"{served.kind} {name} cannot be scaled: it is not elastic; "
            "create it with spec.elastic.enabled"
        )
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    spec["elastic"]["expectedReplicas"] = replicas
    return obj
