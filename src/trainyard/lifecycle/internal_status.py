"""What must be remembered of a job between passes, kept in its status.

Decision 25: counts live here, and are written before any pod is deleted for them. A pod belongs to
the attempt in its annotation, and a replica wants the pod of one attempt: raising that number *is*
the decision to restart the replica. So a failure counts exactly once, whenever the controller dies:
before the write nothing happened, and after it the failed pod belongs to an attempt that is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.reasons import ConditionType, Phase
from trainyard.lifecycle.progress.progress_since_restart import TrainingPosition
from trainyard.lifecycle.replica_state import Exit, Ruling
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse, render

NO_POSITION = TrainingPosition()
HISTORY = 10
"""Attempts kept in `status.attempts` (decision 24)."""

# Reasons of the end of an attempt, beside those of replicas that failed.
RESIZED = "Resized"
"""An elastic job changed its size."""
COMPLETED = "Completed"
"""A replica ended with 0, and runs again under Always."""
PAUSED = "Paused"
EVICTED = "Evicted"
"""Kueue took the admission back."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """How often in a row there was one lasting cause, with nothing gained in between.

    `text` is what people are told of it, and is not kept.
    """

    key: str
    times: int
    text: str = ""
    reached: TrainingPosition = NO_POSITION

    @classmethod
    def decode(cls, obj: Mapping[str, Any] | None) -> Repeat | None:
        """From `status.internal`."""
        if not obj:
            return None
        return cls(obj["cause"], obj["times"], reached=TrainingPosition.decode(obj.get("reached")))

    def encode(self) -> dict[str, Any]:
        """For `status.internal`."""
        obj: dict[str, Any] = {"cause": self.key, "times": self.times}
        if reached := self.reached.encode():
            obj["reached"] = reached
        return obj

    def attempt_fields(self) -> dict[str, Any]:
        """For an element of `status.attempts`."""
        return {"cause": self.text, "repeated": self.times}


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """What is remembered of one replica, where it differs from the job.

    `attempt` is that of the pod that it wants; `restarts` are those that count; `failures` are
    those in a row without a healthy run; its next pod is not created before `not_before`. One that
    is `lost` failed for good, and its elastic job goes on without it. One that has `grown` came
    because its elastic job grew, and has had one pod at most. One that was `excused` failed
    because the members of its job changed, which cost nothing. One that failed for good by a rule,
    or was taken away and waits for its restart by one, keeps the `ruling`: what the rule saw of
    its pod goes with the pod. `repeat` is of one that restarts alone, which failed for good where
    it was `in_vain`.
    """

    attempt: int
    restarts: int = 0
    failures: int = 0
    not_before: datetime | None = None
    lost: bool = False
    grown: bool = False
    excused: bool = False
    ruling: Ruling | None = None
    repeat: Repeat | None = None
    in_vain: bool = False

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> ReplicaRecord:
        return cls(
            attempt=obj["attempt"],
            restarts=obj.get("restarts", 0),
            failures=obj.get("failures", 0),
            not_before=parse(obj.get("notBefore")),
            lost=obj.get("lost", False),
            grown=obj.get("grown", False),
            excused=obj.get("excused", False),
            ruling=Ruling.decode(obj["ruling"]) if "ruling" in obj else None,
            repeat=Repeat.decode(obj.get("repeat")),
            in_vain=obj.get("inVain", False),
        )

    def encode(self) -> dict[str, Any]:
        obj: dict[str, Any] = {"attempt": self.attempt}
        if self.restarts:
            obj["restarts"] = self.restarts
        if self.failures:
            obj["failures"] = self.failures
        if self.not_before:
            obj["notBefore"] = render(self.not_before)
        if self.ruling:
            obj["ruling"] = self.ruling.encode()
        if self.repeat:
            obj["repeat"] = self.repeat.encode()
        marks = {
            "lost": self.lost,
            "grown": self.grown,
            "excused": self.excused,
            "inVain": self.in_vain,
        }
        return obj | {name: True for name, is_set in marks.items() if is_set}


@dataclass(frozen=True, slots=True)
class InternalStatus:
    """What is remembered of a job: `status.internal`, and the history beside it.

    `attempt` is the running number; replicas without a record want a pod of attempt `floor`.
    `backoff` counts restarts against the shared budget. `ready_at` tells when all replicas of this
    attempt ran, `resized_at` when an elastic job changed its `size` last. `attempts` is the
    history, as in status, the current one last. `ended` is the phase that the job has ended with.
    A job that is `evicted` (`held` in the status) has no pods since a queue took its admission back
    (decision 171). `repeat` is of replicas that restart together. `in_place_until` is set while
    pods of the attempt before are to go on with this one (decision 284). `features` are fields that
    policies keep here, by their names in the status; they are carried unread.
    """

    attempt: int = 1
    floor: int = 1
    backoff: int = 0
    failures: int = 0
    size: int | None = None
    ready_at: datetime | None = None
    resized_at: datetime | None = None
    not_before: datetime | None = None
    in_place_until: datetime | None = None
    resumed: bool = False
    paused: bool = False
    evicted: bool = False
    ended: str = ""
    warned: str = ""
    repeat: Repeat | None = None
    reached: TrainingPosition = NO_POSITION
    """How far it had got when a restart cost something last."""
    features: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[str, ReplicaRecord] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    attempts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def decode(cls, status: Mapping[str, Any], features: Iterable[str] = ()) -> InternalStatus:
        """From a job's status; a new job's is empty. `features`: fields of policies to carry."""
        internal = status.get("internal") or {}
        return cls(
            attempt=internal.get("attempt", 1),
            floor=internal.get("floor", 1),
            backoff=internal.get("backoff", 0),
            failures=internal.get("failures", 0),
            size=internal.get("size"),
            ready_at=parse(internal.get("readyAt")),
            resized_at=parse(internal.get("resizedAt")),
            not_before=parse(internal.get("notBefore")),
            in_place_until=parse(internal.get("inPlaceUntil")),
            resumed=internal.get("resumed", False),
            paused=internal.get("paused", False),
            evicted=internal.get("held", False),
            ended=final_phase(status),
            warned=internal.get("warned", ""),
            repeat=Repeat.decode(internal.get("repeat")),
            reached=TrainingPosition.decode(internal.get("reached")),
            features={name: internal[name] for name in features if internal.get(name)},
            records={
                name: ReplicaRecord.decode(obj)
                for name, obj in internal.get("replicas", {}).items()
            },
            restarts={
                task["type"]: task["restartCount"]
                for task in status.get("tasks") or ()
                if task.get("restartCount")
            },
            attempts=tuple(status.get("attempts") or ()),
        )

    def encode(self) -> dict[str, Any]:
        """`status.internal`."""
        moments = {
            "readyAt": self.ready_at,
            "resizedAt": self.resized_at,
            "notBefore": self.not_before,
            "inPlaceUntil": self.in_place_until,
        }
        values = {
            "backoff": self.backoff,
            "failures": self.failures,
            "resumed": self.resumed,
            "paused": self.paused,
            "held": self.evicted,
            "ended": self.ended,
            "warned": self.warned,
            "size": self.size,
            **self.features,
        }
        obj: dict[str, Any] = {
            "attempt": self.attempt,
            "floor": self.floor,
            **{key: render(moment) for key, moment in moments.items() if moment},
            **{key: value for key, value in values.items() if value},
        }
        if self.repeat:
            obj["repeat"] = self.repeat.encode()
        if reached := self.reached.encode():
            obj["reached"] = reached
        if self.records:
            obj["replicas"] = {name: record.encode() for name, record in self.records.items()}
        return obj

    def wanted(self, name: str) -> int:
        """The attempt whose pod the replica with this pod name should have."""
        record = self.records.get(name)
        return record.attempt if record else self.floor

    def is_first(self, name: str) -> bool:
        """Whether the pod that this replica wants is its first, as the job grew."""
        record = self.records.get(name)
        return record is not None and record.grown

    @property
    def was_resized(self) -> bool:
        """Whether the attempt under way began with a change of the job's size."""
        return len(self.attempts) > 1 and self.attempts[-2].get("reason") == RESIZED

    def record(self, name: str) -> ReplicaRecord:
        """What is remembered of the replica with this pod name."""
        return self.records.get(name) or ReplicaRecord(self.floor)

    def restart_all(
        self, ended: Mapping[str, Any], start: datetime, apart: Iterable[str] = ()
    ) -> InternalStatus:
        """A new attempt of every replica that is not lost; it starts at `start`.

        Those `apart` restart alone, and keep theirs.
        """
        number = self._next_number
        kept = {name: record for name, record in self.records.items() if record.lost}
        return replace(
            self,
            attempt=number,
            floor=number,
            ready_at=None,
            not_before=start,
            # Decision 96: what is lost stays so.
            records=kept | {name: self.record(name) for name in apart},
            attempts=self._next(ended, start),
        )

    def restart_some(
        self, names: Iterable[str], ended: Mapping[str, Any], start: datetime
    ) -> InternalStatus:
        """A new attempt for which only some replicas get new pods."""
        number = self._next_number
        return replace(
            self.join(names, number),
            attempt=number,
            ready_at=None,
            not_before=start,
            attempts=self._next(ended, start),
        )

    def join(self, names: Iterable[str], attempt: int) -> InternalStatus:
        """Let further replicas get new pods in that attempt."""
        return self.put({name: ReplicaRecord(attempt) for name in names})

    def put(self, records: Mapping[str, ReplicaRecord]) -> InternalStatus:
        """With these records of replicas."""
        return replace(self, records={**self.records, **records})

    def is_lost(self, name: str) -> bool:
        """Whether the job goes on without this replica."""
        record = self.records.get(name)
        return record is not None and record.lost

    def lose(self, names: Iterable[str]) -> InternalStatus:
        """Go on without these replicas."""
        return self.put({name: ReplicaRecord(self.wanted(name), lost=True) for name in names})

    def spent(self, name: str, *, is_shared: bool) -> int:
        """Restarts so far, of the budget that this replica has alone or that all share."""
        if is_shared:
            return self.backoff
        record = self.records.get(name)
        return record.restarts if record else 0

    def count(self, types: Mapping[str, int]) -> InternalStatus:
        """Add to the restarts that are told per type."""
        counts = dict(self.restarts)
        for name, number in types.items():
            counts[name] = counts.get(name, 0) + number
        return replace(self, restarts=counts)

    def begin(self, start: datetime) -> InternalStatus:
        """The first attempt."""
        return replace(self, attempts=()).open(self.attempt, start)

    def close(self, ended: Mapping[str, Any]) -> InternalStatus:
        """End the current attempt without another one. `ended` may tell whose attempt it was.

        One that was still to start when it ended starts with its end.
        """
        if not self.attempts or "endTime" in self.attempts[-1]:
            return self
        closed = {**self.attempts[-1], **ended}
        end, start = parse(closed.get("endTime")), parse(closed["startTime"])
        if end is not None and start is not None and end < start:
            closed["startTime"] = closed["endTime"]
        return replace(self, attempts=(*self.attempts[:-1], closed))

    def note(self, entry: Mapping[str, Any], start: datetime) -> InternalStatus:
        """Add the finished attempt of a single replica, which starts anew at `start`.

        What is under way has the highest number that any replica has reached.
        """
        *others, current = self.attempts
        number = max(current["number"], entry["number"] + 1)
        return replace(self, attempts=(*others, entry)).open(number, start)

    def note_beside(self, entry: Mapping[str, Any]) -> InternalStatus:
        """Add the finished attempt of a single replica, while that of the others goes on."""
        *others, current = self.attempts
        return replace(self, attempts=(*others, entry, current)[-HISTORY:])

    def open(self, number: int, start: datetime) -> InternalStatus:
        """Begin an attempt after the last one has ended."""
        opened = {"number": number, "startTime": render(start)}
        return replace(self, attempts=(*self.attempts, opened)[-HISTORY:])

    @property
    def _next_number(self) -> int:
        """Above that of any replica: those that restart one by one may be ahead of the job."""
        reached = [self.attempt, *(record.attempt for record in self.records.values())]
        return max(reached) + 1

    def _next(self, ended: Mapping[str, Any], start: datetime) -> tuple[Mapping[str, Any], ...]:
        return self.close(ended).open(self._next_number, start).attempts


def final_phase(status: Mapping[str, Any]) -> str:
    """The phase that a job has ended with, by `status.internal`; "" while it has not ended.

    The phase itself anybody may have written who may write a status (decision 105).
    """
    internal = status.get("internal") or {}
    if "ended" in internal:
        return str(internal["ended"])
    # Those that ended under an earlier version have no such entry.
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    phase = str(status.get("phase", ""))
    has_ended = conditions.get(ConditionType.COMPLETED) == "True" and "completionTime" in status
    return phase if has_ended and phase in (Phase.SUCCEEDED, Phase.FAILED) else ""


def attempt_end(
    now: datetime, reason: str, replica: str = "", end: Exit | None = None
) -> dict[str, Any]:
    """How an attempt ended, as `status.attempts` tells it: when its replica did, if that is known.

    A controller that was away learns of an end late; and clocks of nodes may be ahead.
    """
    at = min(end.at, now) if end is not None and end.at is not None else now
    entry: dict[str, Any] = {"endTime": render(at), "reason": str(reason)}
    if replica:
        entry["replica"] = replica
    if end is not None and end.code is not None:
        entry["exitCode"] = end.code
    if end is not None and end.ruling is not None:
        entry["message"] = end.ruling.decides
    return entry
