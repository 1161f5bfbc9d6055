"""A hash of the part of a spec that may not change after creation."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from trainyard.kinds.shared.job import Job


def spec_hash(job: Job) -> str:
    """Equal for two versions of a job exactly when they differ in mutable fields only.

    Mutable are `runMode.pause.enabled` and `elastic.expectedReplicas`.
    """
    spec: dict[str, Any] = job.dump().get("spec", {})
    spec.get("runMode", {}).get("pause", {}).pop("enabled", None)
    spec.get("elastic", {}).pop("expectedReplicas", None)
    _drop_empty(spec, "runMode", "pause")
    _drop_empty(spec, "runMode")
    _drop_empty(spec, "elastic")
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _drop_empty(spec: dict[str, Any], *path: str) -> None:
    """A block that only held mutable fields is as good as absent."""
    *parents, last = path
    for key in parents:
        spec = spec.get(key, {})
    if last in spec and not spec[last]:
        del spec[last]
