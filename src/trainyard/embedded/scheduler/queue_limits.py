"""What a Queue allows the pods that start through it: quota, closing, duration, priority."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from trainyard.embedded.resources.queue_names import is_implicit
from trainyard.embedded.scheduler.node_info import NodeInfo, PodEntry
from trainyard.embedded.scheduler.resource_requests import (
    PODS,
    Amounts,
    add,
    amounts,
    describe_amount,
    format_amount,
    total,
)
from trainyard.schema import duration
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What the scheduler needs of a Queue; no `quota` means no limits (decision 36)."""

    name: str
    quota: Amounts
    priority: int
    is_closed: bool
    max_duration: timedelta | None
    is_implicit: bool = False
    """The scheduler made it, and nobody has changed it since."""

    @classmethod
    def from_object(cls, queue: dict[str, Any]) -> QueueLimits:
        """From a stored Queue."""
        spec = queue.get("spec") or {}
        longest = spec.get("maxDuration")
        return cls(
            name=queue["metadata"]["name"],
            quota=amounts((spec.get("quota") or {}).get("requests") or {}),
            priority=spec.get("priority", 0),
            is_closed=bool(spec.get("closed")),
            max_duration=duration.parse(longest) if longest else None,
            is_implicit=is_implicit(queue),
        )

    def rejection_reason(self, pods: Sequence[PodEntry], node: NodeInfo) -> str:
        """Why these pods may not start through this queue now, or ""."""
        if self.is_closed:
            return f"queue {self.name} is closed"
        used = total(
            node.effective_requests([pod]) for pod in node.pods() if pod.queue == self.name
        )
        wanted = total(node.effective_requests([pod]) for pod in pods)
        for name, value in add(used, wanted).items():
            limit = self.quota.get(name)
            if limit is not None and value > limit and name != PODS:
                asked = wanted.get(name, 0)
                return (
                    f"queue {self.name} allows {describe_amount(name, limit)}: "
                    f"{format_amount(name, used.get(name, 0))} in use, "
                    f"{format_amount(name, asked)} wanted"
                    + (", more than it allows at all" if asked > limit else "")
                )
        return ""
