"""`status.goodput`: what a job's wall time was spent on."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from trainyard.schema.model import Items, OpenModel, Time


class Part(StrEnum):
    """What time is spent on, in the order in which it is told."""

    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    LOST = "lost"
    HUNG = "hung"
    RESTARTING = "restarting"
    PAUSED = "paused"


def seconds_by_part(status: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    """What a status accounts for; what others wrote there and is no number is left out."""
    told = (status or {}).get("goodput") or {}
    for part in Part:
        if isinstance(value := told.get(part.value), int | float) and value >= 0:
            yield part.value, float(value)


Seconds = Annotated[float, Field(ge=0)]


class Spent(OpenModel):
    """Seconds by what they were spent on; what is absent took none."""

    queued: Seconds | None = Field(
        default=None, description="Seconds in which a queue or the scheduler had no place for it."
    )
    starting: Seconds | None = Field(
        default=None, description="Seconds until all replicas ran, at first and after a pause."
    )
    training: Seconds | None = Field(
        default=None,
        description="Seconds in which all replicas ran, less those that were lost or in which they "
        "saved; where steps are told, from the first one on.",
    )
    saving: Seconds | None = Field(
        default=None,
        description="Seconds in which checkpoints were written that were not lost; absent where no "
        "replica tells it.",
    )
    lost: Seconds | None = Field(
        default=None,
        description="Seconds of training whose steps a restart has thrown away; absent where no "
        "replica tells its steps.",
    )
    hung: Seconds | None = Field(default=None, description="Seconds in which it hung.")
    restarting: Seconds | None = Field(
        default=None, description="Seconds from a failure until all replicas ran again."
    )
    paused: Seconds | None = Field(default=None, description="Seconds in which it was paused.")


class AttemptGoodput(Spent):
    """What one attempt spent its time on."""

    number: int = Field(default=0, description="Its number in `attempts`.")


class Goodput(Spent):
    """What the job has spent its time on since it was created; the sum is all of it."""

    state: str | None = Field(
        default=None,
        description="On which of these time is spent since `asOf`; none after its end.",
    )
    as_of: Time | None = Field(default=None, description="Until when time is accounted for.")
    attempts: Items[AttemptGoodput] = Field(
        default=(), description="The same of the last ten attempts, oldest first."
    )
