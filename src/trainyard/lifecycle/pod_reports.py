"""What a job's own pods report, through their channel to the controller.

It is observed like anything else, but known only to the controller that received it: what must last
is in the job's status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from trainyard.lifecycle.hang.rank_reports import RankReport, bounded_number
from trainyard.lifecycle.node_check.node_check_results import NodeCheckReport
from trainyard.lifecycle.straggler.straggler_detector import Straggler
from trainyard.schema.dataclass import dataclass

_MAX_MESSAGE = 4096
"""Characters; as many bytes as a termination message of Kubernetes may have."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that a job says to have written. `step` is where its work stood."""

    path: str
    at: datetime
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessWork:
    """What one process has done since it reported its first step, in its own seconds since then.

    `began` with step `first`, by the controller's clock. The step reported last came after
    `seconds`; `saved` is the step of its last checkpoint, and after how many seconds that was
    whole. `saving`: seconds in which it wrote checkpoints.
    """

    run: str
    """One process, other than any before it."""
    began: datetime
    first: int
    seconds: float
    saved: tuple[int, float] | None = None
    saving: float = 0.0


PRINTED = "Output"
SOURCES = ("", "TensorBoard", PRINTED)
"""Where progress is known from, what is trusted most first, as programs of `payloads/observer` have
it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is, as last reported; None where nothing is known.

    `at`: when the controller received it. `rate`: steps a second. `remaining`: seconds, as of then.
    `source`: whence it is known where the program does not report it itself.
    """

    at: datetime
    replica: str = ""
    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    percentage: int | None = None
    rate: float | None = None
    remaining: int | None = None
    metrics: tuple[tuple[str, str], ...] | None = None
    checkpoint: Checkpoint | None = None
    work: ProcessWork | None = None
    source: str = ""

    @property
    def has_position(self) -> bool:
        """Whether it says how far the training is."""
        return self.step is not None or self.percentage is not None

    def after(self, before: Progress | None) -> Progress:
        """With what `before` told and this one leaves out; what step, share and time left are is
        told together or not at all. What the program tells itself is never replaced by what is
        known of it otherwise, nor what it writes for TensorBoard by what it prints."""
        if before is None:
            return self
        if before.has_position and SOURCES.index(self.source) > SOURCES.index(before.source):
            return before
        if not self.has_position:
            now = replace(
                self,
                step=before.step,
                percentage=before.percentage,
                rate=before.rate,
                remaining=before.remaining,
                source=before.source,
            )
        else:
            now = self
        return replace(
            now,
            total=before.total if now.total is None else now.total,
            epoch=before.epoch if now.epoch is None else now.epoch,
            metrics=before.metrics if now.metrics is None else now.metrics,
            checkpoint=now.checkpoint or before.checkpoint,
        )


@dataclass(frozen=True, slots=True)
class CollectiveCounts:
    """What is known of a training by its collectives alone, as of when the report was received:
    how many rank 0 has begun, how many a second, once that is known, and which cadence they have
    (`Rank.cadence`)."""

    at: datetime
    replica: str
    count: int
    rate: float | None = None
    cadence: tuple[int, float] | None = None


class ReportedState(Protocol):
    """How something stands in a pod, by its last report."""

    @property
    def state(self) -> tuple[object, ...]:
        """What the controller acts on."""

    def repeating(self, before: Any, /) -> ReportedState:
        """What is kept where `before` said the same."""


@dataclass(frozen=True, slots=True)
class InPlaceReport:
    """How the attempt in a pod stands that can be restarted in place.

    Whether it has ended, and if so when, with which exit code and last output. `received_at` is the
    time of the last report, `since` that of the first that said so. After its command has ended the
    pod waits until the next attempt may start.
    """

    uid: str
    attempt: int
    received_at: datetime
    ended: bool = False
    code: int = 0
    at: datetime | None = None
    message: str = ""
    since: datetime | None = None

    @property
    def state(self) -> tuple[str, int, bool]:
        """See ReportedState."""
        return self.uid, self.attempt, self.ended

    def repeating(self, before: InPlaceReport) -> InPlaceReport:
        """See ReportedState."""
        return replace(self, at=before.at, since=before.since)

    @classmethod
    def decode(cls, obj: Any, received_at: datetime) -> InPlaceReport:
        """From a report, which may be anything; raises ValueError, with the field."""
        if not isinstance(obj, Mapping):
            raise ValueError("hold: must be an object")
        ended, message = obj.get("ended"), obj.get("message")
        if not isinstance(ended, bool) or not isinstance(message, str):
            raise ValueError("hold: ended is a boolean, and message a text")
        seconds = bounded_number(obj, "hold", "seconds", 1e9)
        return cls(
            uid=str(obj.get("uid", "")),
            attempt=int(bounded_number(obj, "hold", "attempt", 1e9)),
            received_at=received_at,
            ended=ended,
            code=int(bounded_number(obj, "hold", "exitCode", 255)),
            at=received_at - timedelta(seconds=seconds) if ended else None,
            message=message[-_MAX_MESSAGE:],
            since=received_at,
        )


@dataclass(frozen=True, slots=True)
class PodReports:
    """Everything that the pods of one job have reported."""

    progress: Progress | None = None
    ranks: tuple[RankReport, ...] = ()
    """The last report of each rank."""
    doubles: tuple[RankReport, RankReport] | None = None
    """Of two pods that both go on to report as the same rank."""
    in_place: Mapping[str, InPlaceReport] = field(default_factory=dict)
    """How attempts in pods stand that can be restarted in place, by the pod's name."""
    node_checks: Mapping[str, NodeCheckReport] = field(default_factory=dict)
    """How the test of its node stands, by the pod's name."""
    stragglers: tuple[Straggler, ...] | None = None
    """The ranks for which others wait again and again; None while that is not known."""
    collectives: CollectiveCounts | None = None


NO_REPORTS = PodReports()
