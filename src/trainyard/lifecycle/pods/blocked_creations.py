"""Creations that must wait: the server refused one of the kind, or somebody holds the name.

Decision 26: they are tried again, after delays that grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.resources import Resource
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.observed import Conflict, Observed
from trainyard.lifecycle.restart import restart_backoff
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BlockedCreations:
    """Resources of which none is created for a while, and names that are taken."""

    refused_until: Mapping[Resource, datetime]
    taken: Mapping[tuple[Resource, str], Conflict]

    @classmethod
    def from_observed(cls, observed: Observed, settings: Settings) -> BlockedCreations:
        """Sorted once, for there may be thousands of creations."""
        base, most = settings.refusal_base_seconds, settings.refusal_max_seconds
        refused: dict[Resource, datetime] = {}
        for refusal in observed.refusals:
            until = refusal.at + restart_backoff.exponential_delay(base, most, refusal.count)
            refused[refusal.resource] = max(until, refused.get(refusal.resource, until))
        return cls(refused, {(c.resource, c.name): c for c in observed.conflicts})

    @property
    def is_empty(self) -> bool:
        """Whether everything may be created."""
        return not self.refused_until and not self.taken

    def may_create(self, create: Create, now: datetime) -> tuple[bool, datetime | None]:
        """Whether an object may be created now, and if not, when it may; None: nobody knows."""
        conflict = self.taken.get((create.resource, create.name))
        until = conflict.until if conflict else self.refused_until.get(create.resource)
        clear = now >= until if until is not None else conflict is None
        return clear, None if clear else until
