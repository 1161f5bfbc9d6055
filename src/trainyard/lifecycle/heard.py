"""What a job's own pods have said of it, through their channel to the controller.

It is observed like anything else, but known only to the controller that heard it: what must last is
in the job's status.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainyard.lifecycle.ranks import Rank
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that a job says to have written. `step` is where its work stood."""

    path: str
    at: datetime
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What one process has done since it told its first step, in its own seconds since then.

    `began` with step `first`, by the controller's clock. The step that was told last came after
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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is, as last told; None where nothing was said.

    `at`: when the controller heard it. `rate`: steps a second. `remaining`: seconds, as of then.
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
    work: Work | None = None

    def after(self, before: Progress | None) -> Progress:
        """With what `before` told and this one leaves out; what step, share and time left are is
        told together or not at all."""
        if before is None:
            return self
        if self.step is None and self.percentage is None:
            now = replace(
                self,
                step=before.step,
                percentage=before.percentage,
                rate=before.rate,
                remaining=before.remaining,
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
class Heard:
    """Everything that the pods of one job have said."""

    progress: Progress | None = None
    ranks: tuple[Rank, ...] = ()
    """The last report of each rank."""


NOTHING = Heard()
