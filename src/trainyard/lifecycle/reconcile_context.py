"""One pass over one job: what every policy is given, and what those that restart replicas answer.

A policy reads a `Pass` and returns what follows from it; only `plan()` puts the answers together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle.in_place import in_place_pods
from trainyard.lifecycle.ledger import Ledger, Repeat
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.outcomes import Exit
from trainyard.lifecycle.replica_view import Replica, View, entries_of, sort_replicas
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """A job as it is wanted, as it was told (`before`, the stored status) and as it is seen now."""

    workload: Workload
    before: Mapping[str, Any]
    observed: Observed
    now: datetime
    settings: Settings
    ledger: Ledger
    view: View
    anew: frozenset[str] = frozenset()
    """Pod names of the replicas that this pass has given a new attempt."""

    @classmethod
    def begin(
        cls,
        workload: Workload,
        before: Mapping[str, Any],
        observed: Observed,
        now: datetime,
        settings: Settings,
    ) -> ReconcileContext:
        """With the account that status holds, and the pods sorted out."""
        ledger, entries = Ledger.decode(before), entries_of(before)
        observed = in_place_pods.with_reported_ends(workload, observed, entries)
        view = sort_replicas(workload, ledger, entries, observed)
        return cls(workload, before, observed, now, settings, ledger, view)

    def having(self, ledger: Ledger) -> ReconcileContext:
        """The same with another account."""
        return replace(self, ledger=ledger)

    def look_again(self, anew: frozenset[str]) -> ReconcileContext:
        """Sort the pods once more after the account gave these replicas a new attempt."""
        return self.sorted_anew(anew) if anew else self

    def sorted_anew(self, anew: frozenset[str] = frozenset()) -> ReconcileContext:
        """Sort the pods once more by the account, which has changed since they were."""
        anew |= self.anew
        entries = entries_of(self.before)
        for name in anew:
            entries.pop(name, None)
        view = sort_replicas(self.workload, self.ledger, entries, self.observed)
        return replace(self, view=view, anew=anew)


@dataclass(frozen=True, slots=True)
class Incident:
    """A restart that was decided upon: `cause` is the replica whose end came first.

    `members_changed`: these ended because others joined or left their elastic job (decision 94).
    """

    cause: Replica
    exit: Exit
    restarted: int
    start: datetime
    members_changed: bool = False

    @property
    def reason(self) -> str:
        """One word on why."""
        return "MembersChanged" if self.members_changed else self.exit.reason or "Error"


REPEATS_IN_VAIN = 2
"""So many failures in a row by one lasting cause are not mended by another start."""


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """The account after what ended was dealt with, and when to look again."""

    ledger: Ledger
    incidents: tuple[Incident, ...] = ()
    failed_for_good: tuple[Replica, ...] = ()
    wake_at: datetime | None = None
    restarted: frozenset[str] = field(default_factory=frozenset)
    """Pod names of the replicas that start anew."""
    repeats: Mapping[str, Repeat] = field(default_factory=dict)
    """Of what has failed just now, by pod name: how often in a row so."""

    def same(self, replica: Replica) -> Repeat | None:
        """Where a replica has failed as before, so that a restart will not help."""
        repeat = self.repeats.get(replica.name)
        return repeat if repeat is not None and repeat.times >= REPEATS_IN_VAIN else None
