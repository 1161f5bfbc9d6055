"""What jobs of all kinds have in common: the model, and what may change after creation."""

import hashlib
import json
from typing import Any

from pydantic import Field

from trainyard.kinds.shared.labels import BATCH
from trainyard.schema.meta import ObjectMeta
from trainyard.schema.model import Model, Observed

API_VERSION = f"{BATCH}/v1beta1"

MUTABLE: tuple[tuple[str, ...], ...] = (
    ("spec", "runMode", "pause", "enabled"),
    ("spec", "elastic", "expectedReplicas"),
)
"""What may change after a job was created (decision 8)."""


class Job(Model):
    """Fields common to all kinds of jobs; each kind narrows ``spec``."""

    api_version: str = Field(default=API_VERSION, description=f"Always `{API_VERSION}`.")
    kind: str = Field(description="The kind of the job.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta.empty, description="Standard object metadata."
    )
    spec: Model = Field(description="What to run.")
    status: Observed = Field(
        default=None, description="What the controller observed last; written by it alone."
    )


def spec_hash(job: Job) -> str:
    """A hash that two versions of a job share exactly if they differ in mutable fields only."""
    root = job.dump()
    for path in MUTABLE:
        _drop(root, path)
    text = json.dumps(root.get("spec", {}), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _drop(parent: dict[str, Any], path: tuple[str, ...]) -> None:
    """Remove a field, and the blocks around it that held nothing else: they equal absent ones."""
    key, *rest = path
    if rest and key in parent:
        _drop(parent[key], tuple(rest))
    if key in parent and (not rest or not parent[key]):
        del parent[key]
