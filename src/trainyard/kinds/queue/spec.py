"""Queue (``scheduler.tensorstack.dev/v1beta1``)."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainyard.kinds.shared.run_policy import Priority
from trainyard.kinds.shared.scheduling.scheduling_object import SchedulingObject
from trainyard.schema import duration, quantity
from trainyard.schema.model import Model, Observed


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


class Queue(SchedulingObject):
    """A share of the cluster in which jobs wait for their turn."""

    kind: str = Field(default="Queue", description="Always `Queue`.")
    spec: QueueSpec = Field(default_factory=QueueSpec.empty, description="What is wanted.")
    status: Observed = Field(default=None, description="What was observed last.")
