"""`status` of a PodGroup."""

from pydantic import Field

from trainyard.kinds.shared.status import SchedulingCondition
from trainyard.schema.model import Items, OpenModel, Template


class PodGroupStatus(OpenModel):
    """What the scheduler observed last."""

    phase: str = Field(default="", description="Pending, Running or Finished.")
    allocated: Template | None = Field(default=None, description="Resources of the scheduled pods.")
    running: int = Field(default=0, description="Running pods.")
    succeeded: int = Field(default=0, description="Succeeded pods.")
    failed: int = Field(default=0, description="Failed pods.")
    pending: int = Field(default=0, description="Pending pods.")
    conditions: Items[SchedulingCondition] = Field(
        default=(), description="GroupScheduled and SufficientGroupMember."
    )
