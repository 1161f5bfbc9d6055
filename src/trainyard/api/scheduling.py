"""PodGroup and Queue (``scheduler.tensorstack.dev/v1beta1``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainyard.api import duration, quantity
from trainyard.api.meta import ObjectMeta
from trainyard.api.model import Count, Items, Model, OpenModel, Template, Time
from trainyard.api.run import Priority

API_VERSION = "scheduler.tensorstack.dev/v1beta1"


def _checked_quantity(value: object) -> object:
    if isinstance(value, str | int | float):
        quantity.parse(value)
    return value


def _checked_duration(value: object) -> object:
    if isinstance(value, str):
        duration.parse(value)
    return value


Quantity = Annotated[
    int | float | str,
    BeforeValidator(_checked_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True}),
]
Duration = Annotated[str, BeforeValidator(_checked_duration)]
LabelSelector = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]


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


class SchedulingCondition(OpenModel):
    """One aspect of the state of a PodGroup or Queue."""

    type: str = Field(default="", description="Which aspect, e.g. GroupScheduled.")
    status: str = Field(default="", description="True, False or Unknown.")
    reason: str = Field(default="", description="One word on the last change.")
    message: str = Field(default="", description="One sentence on the last change.")
    last_transition_time: Time | None = Field(
        default=None, description="When `status` changed last."
    )


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


class PodGroup(Model):
    """Pods that are scheduled all or not at all."""

    KIND: ClassVar[str] = "PodGroup"

    api_version: str = Field(default=API_VERSION, description="API version.")
    kind: str = Field(default="PodGroup", description="Always `PodGroup`.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta, description="Standard object metadata."
    )
    spec: PodGroupSpec = Field(default_factory=PodGroupSpec, description="What is wanted.")
    status: PodGroupStatus = Field(
        default_factory=PodGroupStatus, description="What was observed last."
    )


class Quota(Model):
    """Limits of a Queue."""

    requests: dict[str, Quantity] = Field(
        default={},
        description="Resources that the Queue's pods may request together.",
        examples=[{"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": 8}],
    )


class QueueSpec(Model):
    """What a Queue allows."""

    quota: Quota | None = Field(
        default=None,
        description="Limits; unset means none.",
        examples=[{"requests": {"cpu": "16", "nvidia.com/gpu": 8}}],
    )
    priority: Priority = Field(
        default=0, description="Priority among the Queues, 0 to 100. Defaults to 0."
    )
    preemptible: bool = Field(
        default=True,
        description="Whether other Queues may take its resources back. Defaults to true.",
    )
    closed: bool = Field(
        default=False, description="Whether it refuses new pods. Defaults to false."
    )
    max_duration: Duration | None = Field(
        default=None,
        description="Age at which its pods are removed, in y, w, d, h, m, s and ms.",
        examples=["1d12h"],
    )
    resource_shape_profile: str | None = Field(
        default=None, description="Name of the resource shape profile of the Queue."
    )
    node_selector: LabelSelector | None = Field(
        default=None, description="Nodes that the Queue may use, a label selector."
    )
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="Namespaces that may use the Queue, a label selector; unset means none.",
    )


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


class Queue(Model):
    """A share of the cluster in which jobs wait for their turn."""

    KIND: ClassVar[str] = "Queue"

    api_version: str = Field(default=API_VERSION, description="API version.")
    kind: str = Field(default="Queue", description="Always `Queue`.")
    metadata: ObjectMeta = Field(
        default_factory=ObjectMeta, description="Standard object metadata."
    )
    spec: QueueSpec = Field(default_factory=QueueSpec, description="What is wanted.")
    status: QueueStatus = Field(default_factory=QueueStatus, description="What was observed last.")
