"""Which nodes do not answer. Optional: a controller without the right to see nodes goes without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """A node, reduced to whether it can be trusted to run pods."""

    name: str
    uid: str
    resource_version: str
    is_ready: bool
    namespace: str = ""

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Node:
        """From a `v1` Node; a node without a Ready condition has not reported yet."""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "True")
        metadata = obj["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata.get("resourceVersion", ""),
            is_ready=ready == "True",
        )
