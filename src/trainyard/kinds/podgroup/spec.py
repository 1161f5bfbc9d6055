"""PodGroup (``scheduler.tensorstack.dev/v1beta1``)."""

from pydantic import Field

from trainyard.kinds.shared.run_policy import Priority
from trainyard.kinds.shared.scheduling.scheduling_object import SchedulingObject
from trainyard.schema.model import Count, Items, Model, Observed


class Role(Model):
    """A part of a PodGroup with its own minimum."""

    name: str = Field(description="Name of the role, as in the pods' label.", examples=["worker"])
    min_member: Count = Field(default=1, description="Pods needed of this role. Defaults to 1.")


class PodGroupSpec(Model):
    """Which pods are scheduled together."""

    min_member: Count = Field(
        default=1, description="Nothing starts until this many pods exist and fit. Defaults to 1."
    )
    roles: Items[Role] = Field(default=(), description="Minimums per role.")
    queue: str | None = Field(default=None, description="The Queue. Defaults to `default`.")
    priority: Priority = Field(
        default=0, description="Priority within the Queue, 0 to 100. Defaults to 0."
    )
    topology_policy: str | None = Field(
        default=None, description="Where the pods should be relative to each other."
    )


class PodGroup(SchedulingObject):
    """Pods that are scheduled all or not at all."""

    kind: str = Field(default="PodGroup", description="Always `PodGroup`.")
    spec: PodGroupSpec = Field(default_factory=PodGroupSpec.empty, description="What is wanted.")
    status: Observed = Field(default=None, description="What was observed last.")
