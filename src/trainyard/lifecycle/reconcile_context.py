"""One reconcile of a job: what every policy is given, and what those that restart replicas answer.

A policy reads a `ReconcileContext` and returns what follows from it; only `plan()` puts the answers
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.reasons import Phase
from trainyard.kinds.shared.workload import Workload
from trainyard.lifecycle.in_place import in_place_pods
from trainyard.lifecycle.internal_status import InternalStatus, Repeat
from trainyard.lifecycle.observed import Observed
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica, View, entries_of, sort_replicas
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """A job as it is wanted, as its stored status (`before`) has it, and as it is observed now."""

    workload: Workload
    before: Mapping[str, Any]
    observed: Observed
    now: datetime
    settings: Settings
    internal: InternalStatus
    view: View
    restarted_now: frozenset[str] = frozenset()
    """Pod names of the replicas that this reconcile has given a new attempt."""
    decided: RestartDecision | None = None

    @property
    def restarts(self) -> RestartDecision:
        """What restarts; only policies that come after that decision may ask."""
        assert self.decided is not None, "it is not decided yet what restarts"
        return self.decided

    @classmethod
    def create(
        cls,
        workload: Workload,
        before: Mapping[str, Any],
        observed: Observed,
        now: datetime,
        settings: Settings,
        internal_fields: Iterable[str] = (),
    ) -> ReconcileContext:
        """With what the stored status remembers, and the pods sorted by replica.

        `internal_fields`: those of policies, carried unread.
        """
        internal, entries = InternalStatus.decode(before, internal_fields), entries_of(before)
        observed = in_place_pods.with_reported_ends(workload, observed, entries)
        view = sort_replicas(workload, internal, entries, observed)
        return cls(workload, before, observed, now, settings, internal, view)

    def with_internal(self, internal: InternalStatus) -> ReconcileContext:
        """The same with another internal status."""
        return replace(self, internal=internal)

    def with_replicas(self, changed: Mapping[str, Replica]) -> ReconcileContext:
        """The same with other replicas in place of those with these pod names."""
        if not changed:
            return self
        replicas = [changed.get(replica.name, replica) for replica in self.view.replicas]
        not_running = [replica for replica in replicas if replica.state is not State.RUNNING]
        return replace(self, view=self.view._replace(replicas=replicas, not_running=not_running))

    def with_new_attempts(self, restarted: frozenset[str]) -> ReconcileContext:
        """Sort the pods once more after these replicas were given a new attempt."""
        return self.sorted_again(restarted) if restarted else self

    def sorted_again(self, restarted: frozenset[str] = frozenset()) -> ReconcileContext:
        """Sort the pods once more by the internal status, which has changed since they were."""
        restarted |= self.restarted_now
        entries = entries_of(self.before)
        for name in restarted:
            entries.pop(name, None)
        view = sort_replicas(self.workload, self.internal, entries, self.observed)
        return replace(self, view=view, restarted_now=restarted)


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
    """The internal status after what ended was dealt with, and when to look again."""

    internal: InternalStatus
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """Success, or failure with its reason; `cause` is the replica to blame, if one is."""

    success: bool
    reason: str
    message: str
    cause: Replica | None = None
    repeat: Repeat | None = None
    """How often in a row that one has failed so."""

    @property
    def phase(self) -> Phase:
        """In which the job ends."""
        return Phase.SUCCEEDED if self.success else Phase.FAILED

    @property
    def same(self) -> Repeat | None:
        """Where it had failed so before."""
        return (
            self.repeat
            if self.repeat is not None and self.repeat.times >= REPEATS_IN_VAIN
            else None
        )
