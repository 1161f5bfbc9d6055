"""GenericJob: any set of pods, with rules that say when the set has succeeded or failed."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    POD_FAILURE_POLICY,
    PodFailurePolicy,
)
from trainyard.kinds.shared.hang.hang_spec import HANG, OBSERVE, Hang
from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.run_policy import (
    BACKOFF_RESET,
    CLEAN_UP_POLICY,
    MANAGED_BY,
    RESTART_JUDGE,
    RUN_MODE,
    SCHEDULER,
    BackoffReset,
    CleanUpPolicy,
    ReplicaRestartPolicy,
    RunMode,
    UnrankedSchedulePolicy,
)
from trainyard.schema.model import INT32_MAX, Count, Items, Model, TrainingTemplate

DIGITS = re.compile(r"\d{1,9}\Z", re.ASCII)
VARIABLE = re.compile(
    r"\$\$|\$\((?:(?P<own>type|rank)"
    r"|replicas\[(?P<count>[^\]()]*)\]"
    r"|service\.port\[(?P<port>[^\]()]*)\]"
    r"|service\.(?P<host>[^.\[\]()]*)\[(?P<index>[^\]()]*)\]\.host)\)"
)
"""The variables of a GenericJob, and the escape ``$$``; other ``$(NAME)`` are Kubernetes' own."""


def _index(value: object) -> object:
    """A digit string as an integer; documents show both forms."""
    return int(value) if isinstance(value, str) and DIGITS.match(value) else value


ReplicaIndex = Annotated[
    int,
    BeforeValidator(_index),
    Field(ge=0, le=INT32_MAX),
    WithJsonSchema({"x-kubernetes-int-or-string": True}),
]
FinishRule = dict[str, Items[ReplicaIndex]]
"""Replica type → indexes: the rule holds when it holds for all of these replicas."""


class ServicePort(Model):
    """A port of each replica's Service."""

    name: str | None = Field(
        default=None,
        description="Name of the port; needed when there are several.",
        examples=["http"],
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        description="Port of the Service.", examples=[2222]
    )
    protocol: Literal["TCP", "UDP", "SCTP"] = Field(
        default="TCP", description="TCP, UDP or SCTP. Defaults to TCP.", examples=["TCP"]
    )
    target_port: Annotated[
        int | str | None, WithJsonSchema({"x-kubernetes-int-or-string": True})
    ] = Field(
        default=None,
        description="Number or name of the container's port. Defaults to `port`.",
        examples=[8080],
    )
    node_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Accepted as in core/v1; unused with ClusterIP Services."
    )
    app_protocol: str | None = Field(
        default=None, description="Application protocol of the port.", examples=["http"]
    )


class ServiceOption(Model):
    """A Service for each replica."""

    ports: Items[ServicePort] = Field(
        default=(),
        description="Ports of each replica's Service; without any, no Service is created.",
        examples=[[{"name": "grpc", "port": 2222}]],
    )


class GenericReplicaSpec(Model):
    """One type of replica."""

    type: str = Field(description="Name of the type.", examples=["worker"])
    replicas: Count = Field(
        default=1, description="Number of replicas. Defaults to 1.", examples=[4]
    )
    restart_policy: ReplicaRestartPolicy = Field(
        default_factory=ReplicaRestartPolicy.empty,
        description="When and how often a replica of this type is restarted.",
        examples=[{"policy": "OnFailure", "limit": 3}],
    )
    template: TrainingTemplate = Field(
        default={},
        description="The pod, a core/v1 PodTemplateSpec. Its restartPolicy is ignored. In "
        "command, args and env values $(type), $(rank), $(replicas[T]), $(service.T[N].host) "
        "and $(service.port[P]) are replaced.",
        examples=[
            {
                "spec": {
                    "containers": [
                        {"name": "main", "image": "trainer", "args": ["--rank", "$(rank)"]}
                    ]
                }
            }
        ],
    )


class GenericRunPolicy(Model):
    """What follows from failures (ours; the other policies of a GenericJob are in its spec)."""

    pod_failure_policy: PodFailurePolicy | None = POD_FAILURE_POLICY
    restart_judge: bool = RESTART_JUDGE
    backoff_reset: BackoffReset = BACKOFF_RESET
    observe: bool | None = OBSERVE
    hang: Hang = HANG


class GenericJobSpec(Model):
    """What to run."""

    success_rules: Items[FinishRule] = Field(
        default=(),
        description="The job succeeds when any rule holds, that is when all replicas that it "
        "lists have succeeded; without rules, when all replicas have succeeded.",
        examples=[[{"worker": [0]}]],
    )
    failure_rules: Items[FinishRule] = Field(
        default=(),
        description="The job fails when any rule holds, that is when all replicas that it "
        "lists have failed for good, or when no success rule can be met any more.",
        examples=[[{"worker": [1]}]],
    )
    service: ServiceOption | None = Field(
        default=None,
        description="A Service for each replica, named `<job>-<type>-<index>`.",
        examples=[{"ports": [{"name": "grpc", "port": 2222}]}],
    )
    run_mode: RunMode = RUN_MODE
    run_policy: GenericRunPolicy = Field(
        default_factory=GenericRunPolicy.empty, description="Ours: what follows from failures."
    )
    clean_up_policy: CleanUpPolicy = CLEAN_UP_POLICY
    scheduler: UnrankedSchedulePolicy | None = SCHEDULER
    managed_by: str | None = MANAGED_BY
    replica_specs: Items[GenericReplicaSpec] = Field(
        description="The replicas, by type; at least one type.",
        examples=[
            [
                {
                    "type": "worker",
                    "replicas": 2,
                    "template": {"spec": {"containers": [{"name": "main", "image": "trainer"}]}},
                }
            ]
        ],
    )


class GenericJob(Job):
    """Any set of pods, with rules that say when the set has succeeded or failed."""

    kind: str = Field(default="GenericJob", description="Always `GenericJob`.")
    spec: GenericJobSpec = Field(description="What to run.")
