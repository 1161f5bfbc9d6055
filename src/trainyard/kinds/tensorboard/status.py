"""`status` of a TensorBoard."""

from pydantic import Field

from trainyard.kinds.shared.status import Condition, ObjectReference
from trainyard.schema.model import Items, OpenModel


class PodState(OpenModel):
    """The viewer's pod."""

    reference: ObjectReference | None = Field(default=None, description="The pod.")
    phase: str = Field(default="", description="Phase of the pod.")


class TensorBoardCondition(Condition):
    """One aspect of the viewer's state."""

    type: str = Field(default="", description="Which aspect: Ready or LogsServed.")


class TensorBoardStatus(OpenModel):
    """What the controller observed last."""

    phase: str = Field(default="", description="Pending, Running, Suspended or Failed.")
    pod: PodState | None = Field(default=None, description="The viewer's pod.")
    conditions: Items[TensorBoardCondition] = Field(default=(), description="Aspects of its state.")
    url: str | None = Field(default=None, description="Address of the viewer.")
    observed_generation: int | None = Field(
        default=None, description="`metadata.generation` that this status is about."
    )
