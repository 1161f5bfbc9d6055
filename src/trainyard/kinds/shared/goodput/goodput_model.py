"""The models of `status.goodput`."""

from typing import Annotated

from pydantic import Field

from trainyard.schema.model import Items, OpenModel, Time

Seconds = Annotated[float, Field(ge=0)]


class TimeSpent(OpenModel):
    """Seconds by what they were spent on; what is absent took none."""

    queued: Seconds | None = Field(
        default=None, description="Seconds in which a queue or the scheduler had no place for it."
    )
    starting: Seconds | None = Field(
        default=None, description="Seconds until all replicas ran, at first and after a pause."
    )
    unknown: Seconds | None = Field(
        default=None,
        description="Seconds in which all replicas ran and none had told a step: whether they "
        "trained, or imported and met still, is not known.",
    )
    training: Seconds | None = Field(
        default=None,
        description="Seconds from the first step that a replica told on, less those that were lost "
        "or in which they saved.",
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


class AttemptGoodput(TimeSpent):
    """What one attempt spent its time on."""

    number: int = Field(default=0, description="Its number in `attempts`.")


class Goodput(TimeSpent):
    """What the job has spent its time on since it was created; the sum is all of it."""

    state: str | None = Field(
        default=None,
        description="On which of these time is spent since `asOf`; none after its end.",
    )
    as_of: Time | None = Field(default=None, description="Until when time is accounted for.")
    attempts: Items[AttemptGoodput] = Field(
        default=(), description="The same of the last ten attempts, oldest first."
    )


GOODPUT: Goodput | None = Field(
    default=None, description="What its wall time was spent on, from its creation on."
)
"""`goodput` of every job's status."""
