"""What the process that reports a job's steps has done.

Kept in `status.internal` until the first step of the next such process shows how much of it was of
use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trainyard.lifecycle.pod_reports import Progress
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse, render

_DIGITS = 3


@dataclass(frozen=True, slots=True)
class TrackedWork:
    """As `pod_reports.ProcessWork`; `step` came after `seconds`. It began in that attempt, in the
    pod `replica`.

    Of a process that tells no times of its own, the controller's are taken.
    """

    run: str
    replica: str
    attempt: int
    began: datetime
    first: int
    step: int
    seconds: float
    saved: tuple[int, float] | None = None
    saving: float = 0.0

    @classmethod
    def decode(cls, obj: Mapping[str, Any] | None) -> TrackedWork | None:
        """From `status.internal`; None where it was written by an earlier version."""
        if not obj or (began := parse(obj.get("began"))) is None:
            return None
        return cls(
            run=obj["run"],
            replica=obj.get("replica", ""),
            attempt=obj["attempt"],
            began=began,
            first=obj["first"],
            step=obj["step"],
            seconds=obj["seconds"],
            saved=(obj["saved"]["step"], obj["saved"]["seconds"]) if "saved" in obj else None,
            saving=obj.get("saving", 0.0),
        )

    def encode(self) -> dict[str, Any]:
        """For `status.internal`."""
        obj = {
            "run": self.run,
            "replica": self.replica,
            "attempt": self.attempt,
            "began": render(self.began),
            "first": self.first,
            "step": self.step,
            "seconds": round(self.seconds, _DIGITS),
            "saving": round(self.saving, _DIGITS),
        }
        if self.saved is not None:
            step, seconds = self.saved
            obj["saved"] = {"step": step, "seconds": round(seconds, _DIGITS)}
        return obj

    def until(self, step: int) -> float:
        """Seconds since it began until it had come so far: those of the checkpoint, where there is
        one of that step, else as if steps took equally long between those that are known."""
        if self.saved is not None and self.saved[0] == step:
            return self.saved[1]
        if step < self.first:
            return 0.0
        known = [(self.first, 0.0), (self.step, self.seconds)]
        if self.saved is not None and self.saved[0] >= self.first:
            known.append(self.saved)
        at, seconds = max(each for each in known if each[0] <= step)
        if after := min((each for each in known if each[0] > step), default=None):
            return seconds + (after[1] - seconds) * (step - at) / (after[0] - at)
        pace = self.seconds / (self.step - self.first) if self.step > self.first else 0.0
        return seconds + (step - at) * pace


def update_work(
    progress: Progress | None, known: TrackedWork | None, attempts: Sequence[Mapping[str, Any]]
) -> TrackedWork | None:
    """What is known with the last report; None where it says nothing of steps, or comes from a
    process that was there before the one that is `known`."""
    if progress is None or progress.step is None:
        return None
    reported = progress.work
    began = reported.began if reported is not None else progress.at
    numbers = [each["number"] for each in attempts if _started_at(each) <= began]
    if not numbers:
        return None
    attempt = max(numbers)
    run = reported.run if reported is not None else f"attempt {attempt}"
    first = reported.first if reported is not None else progress.step
    before = known if known is not None and known.run == run else None
    if before is not None:
        # A report may have been under way for long, and none is heard before it is sent.
        began, first, attempt = min(began, before.began), before.first, before.attempt
    elif known is not None and not _is_next(known, progress.replica, began, attempt):
        return None
    seconds = reported.seconds if reported is not None else (progress.at - began).total_seconds()
    saved = reported.saved if reported is not None else _last_checkpoint(progress, began)
    return TrackedWork(
        run=run,
        replica=progress.replica,
        attempt=attempt,
        began=began,
        first=first,
        step=progress.step,
        seconds=max(seconds, 0.0),
        saved=saved or (before.saved if before is not None else None),
        saving=reported.saving if reported is not None else 0.0,
    )


def _is_next(known: TrackedWork, replica: str, began: datetime, attempt: int) -> bool:
    """Whether a process came after that which is known. Where all replicas tell their steps, the
    first that was heard tells those of the job."""
    if attempt < known.attempt or began < known.began + timedelta(seconds=known.seconds):
        return False
    return replica == known.replica or attempt > known.attempt


def _started_at(attempt: Mapping[str, Any]) -> datetime:
    started = parse(attempt["startTime"])
    assert started is not None
    return started


def _last_checkpoint(progress: Progress, began: datetime) -> tuple[int, float] | None:
    made = progress.checkpoint
    if made is None or made.at < began or progress.step is None:
        return None
    step = progress.step if made.step is None else made.step
    return step, (made.at - began).total_seconds()
