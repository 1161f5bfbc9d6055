"""`status` of a Queue."""

from pydantic import Field

from trainyard.kinds.shared.status import SchedulingCondition
from trainyard.schema.model import Items, OpenModel, Template


class PodGroupCount(OpenModel):
    """PodGroups of a Queue."""

    total: int = Field(default=0, description="All PodGroups.")


class PodCount(OpenModel):
    """Pods of a Queue per phase."""

    pending: int = Field(default=0, description="Pending pods.")
    running: int = Field(default=0, description="Running pods.")
    succeeded: int = Field(default=0, description="Succeeded pods.")
    failed: int = Field(default=0, description="Failed pods.")
    unknown: int = Field(default=0, description="Pods in an unknown state.")


class QueueStatus(OpenModel):
    """What the scheduler observed last."""

    allocated: Template | None = Field(default=None, description="Resources of the scheduled pods.")
    conditions: Items[SchedulingCondition] = Field(default=(), description="Aspects of its state.")
    pod_groups: PodGroupCount | None = Field(default=None, description="PodGroups in the Queue.")
    pods: PodCount | None = Field(default=None, description="Pods in the Queue.")
