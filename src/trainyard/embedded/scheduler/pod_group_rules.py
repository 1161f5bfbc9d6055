"""What the scheduler needs of a PodGroup: its minimum members, its priority and its queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.embedded.scheduler.node_info import PodEntry
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PodGroupRules:
    """A PodGroup, reduced to what placing its pods depends on."""

    namespace: str
    name: str
    min_member: int
    roles: tuple[tuple[str, int], ...]
    priority: int
    queue: str

    @classmethod
    def from_object(cls, group: Mapping[str, Any], default_queue: str) -> PodGroupRules:
        """From a stored PodGroup; one that names no queue belongs to ``default_queue``."""
        spec = group.get("spec") or {}
        return cls(
            namespace=group["metadata"]["namespace"],
            name=group["metadata"]["name"],
            min_member=spec.get("minMember", 1),
            roles=tuple((r["name"], r.get("minMember", 1)) for r in spec.get("roles") or ()),
            priority=spec.get("priority", 0),
            queue=spec.get("queue") or default_queue,
        )

    def missing(self, members: Iterable[PodEntry], least: int) -> str:
        """Which members the group still lacks before any may start, or "" (decision 35).

        `least` is its minimum without the members that have ended.
        """
        present = list(members)
        if len(present) < least:
            return f"pod group {self.name} has {len(present)} of {least} pods"
        for role, least in self.roles:
            count = sum(1 for pod in present if pod.role == role)
            if count < least:
                return f"pod group {self.name} has {count} of {least} pods of role {role}"
        return ""
