"""Fields of run policies: whether ranks are observed, and what follows when they hang."""

from typing import Annotated, Literal

from pydantic import Field

from trainyard.schema.model import INT32_MAX, Model


class Hang(Model):
    """What follows when the ranks of a job get nowhere."""

    after_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = Field(
        default=300,
        description="Seconds without progress from which a job hangs whose ranks wait for one "
        "that is gone, idle or in a loop that changes nothing, or for each other. Longer than "
        "anything for which ranks wait idly on purpose. Defaults to 300.",
        examples=[300],
    )
    action: Literal["Explain", "Restart", "Fail"] = Field(
        default="Explain",
        description="Explain: tell which rank hangs and where. Restart: start the job "
        "again too, whatever restartPolicy says, while there is budget. Fail: end the job. "
        "Defaults to Explain.",
        examples=["Restart"],
    )


OBSERVE: bool | None = Field(
    default=None,
    description="Have Python programs of the training container that use torch.distributed "
    "observed: what each rank waits for, and whether the job hangs. Unset, they are wherever that "
    "hides no PYTHONPATH of the image: on one machine; on a cluster where torchrun, deepspeed or "
    "colossalai is started for the job, where the container's env has a PYTHONPATH, and where "
    "hang is given.",
    examples=[True],
)
"""`observe` of every run policy."""
HANG: Hang = Field(
    default_factory=Hang.empty,
    description="What follows when the ranks get nowhere.",
    examples=[{"afterSeconds": 300, "action": "Restart"}],
)
"""`hang` of every run policy."""
