"""PyTorchTrainingJob: PyTorch training, plain or under torchrun."""

from typing import Annotated, Literal

from pydantic import Field, Strict, WithJsonSchema

from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.node_check.node_check_spec import NODE_CHECK, NodeCheck
from trainyard.kinds.shared.run_policy import (
    MANAGED_BY,
    RESTART_MODE,
    RUN_MODE,
    SCHEDULER,
    Elastic,
    ElasticRange,
    RestartPolicyName,
    RestartScope,
    RunMode,
    RunPolicy,
    SchedulePolicy,
)
from trainyard.kinds.shared.workload import RestartPolicy, SuccessPolicy
from trainyard.kinds.tensorboard.spec import TensorBoardSpec
from trainyard.schema.model import Count, Items, Model, TrainingTemplate

MASTER = "master"
"""The replica type that holds the first ranks, wherever it stands."""
SuccessPolicyName = Annotated[
    SuccessPolicy,
    Strict(False),
    WithJsonSchema({"enum": [policy.value for policy in SuccessPolicy], "type": "string"}),
]
ModuleName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$", max_length=256)
]


class PyTorchRunPolicy(RunPolicy):
    """Limits of a run, when it has succeeded, and what happens after it."""

    success_policy: SuccessPolicyName = Field(
        default=SuccessPolicy.RANK0,
        description="Ours. Rank0: the job succeeds when rank 0 ends with 0. AllReplicas: when all "
        "replicas have; an exit 0 is final then, under Always too. Defaults to Rank0.",
        examples=["AllReplicas"],
    )
    restart_mode: Literal["Recreate", "InPlace"] = RESTART_MODE
    preload: Items[ModuleName] = Field(
        default=(),
        max_length=32,
        description="Ours. Modules that a second Python imports in each pod of a job that restarts "
        "in place, ten seconds after the first has begun; then it waits, and the next attempt "
        "begins in it. It takes the memory of these modules once more. For modules whose import "
        "takes no device, plain launching, and a command that is a Python itself.",
        examples=[["torch"]],
    )
    node_check: NodeCheck = NODE_CHECK


class PyTorchReplicaSpec(Model):
    """One type of replica."""

    type: str = Field(
        description="Name of the type, e.g. worker, master, node or ps. A type named master "
        "comes first in the ranks, the others follow in list order.",
        examples=["worker"],
    )
    replicas: Count = Field(
        default=1, description="Number of replicas. Defaults to 1.", examples=[4]
    )
    restart_policy: RestartPolicyName = Field(
        default=RestartPolicy.NEVER,
        description="Always, OnFailure, Never or ExitCode (restart 130, 137, 138 and 143 only). "
        "Defaults to Never.",
        examples=["OnFailure"],
    )
    restart_scope: RestartScope | None = Field(
        default=None,
        description="Ours. Job: replicas of this type restart together with those of all other "
        "types of scope Job. Replica: each restarts alone, and is left alone when others do. "
        "Defaults to `runPolicy.restartScope`; not for torchrun.",
    )
    scaling_weight: Count | None = Field(
        default=None,
        description="This type's share when an elastic job changes its size. Types without a "
        "weight keep `replicas`; without any weight `replicas` are the weights.",
        examples=[1],
    )
    template: TrainingTemplate = Field(
        default={},
        description="The pod, a core/v1 PodTemplateSpec. Its restartPolicy is ignored. The "
        "training container is the one named pytorch, else python, else the first.",
        examples=[
            {"spec": {"containers": [{"name": "pytorch", "image": "torch", "args": ["train.py"]}]}}
        ],
    )


class TorchrunConfig(Model):
    """Launch with torchrun: the args of the training container are the script and its args."""

    enabled: bool = Field(default=False, description="Whether to use torchrun. Defaults to false.")
    max_restarts: Count | None = Field(
        default=None,
        description="Restarts of torchrun's worker group inside the pods, independent of "
        "`backoffLimit`. Defaults to 0, for an elastic job to 100.",
        examples=[3],
    )
    proc_per_node: str = Field(
        default="1",
        description="Processes per replica: a number as a string, or `gpu` for the replica's "
        "number of GPUs. Defaults to '1'.",
        examples=["2"],
        json_schema_extra={"pattern": "^(gpu|[1-9][0-9]{0,4})$"},
    )
    rdzv_backend: Literal["c10d", "etcd", "etcd-v2"] = Field(
        default="c10d",
        description="Rendezvous backend: c10d, etcd or etcd-v2; etcd must be run by the user. "
        "Defaults to c10d.",
        examples=["c10d"],
    )
    extra_options: Items[str] = Field(
        default=(), description="Further options of torchrun.", examples=[["--tee=3"]]
    )
    min_nodes: int | None = Field(
        default=None, description="Deprecated and ignored: use `elastic.minReplicas`."
    )


class PyTorchTrainingJobSpec(Model):
    """What to run."""

    replica_specs: Items[PyTorchReplicaSpec] = Field(
        description="The replicas, by type; at least one type.",
        examples=[
            [
                {
                    "type": "worker",
                    "replicas": 4,
                    "restartPolicy": "OnFailure",
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "pytorch", "image": "torch", "args": ["train.py"]}
                            ]
                        }
                    },
                }
            ]
        ],
    )
    torchrun_config: TorchrunConfig = Field(
        default_factory=TorchrunConfig.empty,
        description="Launch with torchrun.",
        examples=[{"enabled": True, "procPerNode": "2"}],
    )
    tensorboard_spec: TensorBoardSpec | None = Field(
        default=None,
        description="TensorBoard to create for the job's logs.",
        examples=[{"logDir": {"pvc": [{"name": "mnist", "subPath": ["log"]}]}}],
    )
    run_mode: RunMode = RUN_MODE
    run_policy: PyTorchRunPolicy = Field(
        default_factory=PyTorchRunPolicy.empty,
        description="Limits of the run, when it has succeeded, and what happens after it.",
        examples=[{"backoffLimit": 3, "cleanUpPolicy": "Unfinished"}],
    )
    scheduler: SchedulePolicy | None = SCHEDULER
    managed_by: str | None = MANAGED_BY
    elastic: Elastic = Field(
        default_factory=Elastic.empty,
        description="Change the number of replicas while training; torchrun only.",
        examples=[{"enabled": True, "minReplicas": 2, "maxReplicas": 8, "expectedReplicas": 4}],
    )

    @property
    def by_rank(self) -> list[PyTorchReplicaSpec]:
        """The type `master` first, the others in list order (decision 14)."""
        return sorted(self.replica_specs, key=lambda spec: spec.type != MASTER)

    @property
    def elastic_range(self) -> ElasticRange | None:
        """Bounds and target; None when the job is not elastic or does not use torchrun."""
        if not (self.elastic.enabled and self.torchrun_config.enabled):
            return None
        return self.elastic.range(sum(spec.replicas for spec in self.replica_specs))


class PyTorchTrainingJob(Job):
    """Distributed training with PyTorch, plain or under torchrun."""

    kind: str = Field(default="PyTorchTrainingJob", description="Always `PyTorchTrainingJob`.")
    spec: PyTorchTrainingJobSpec = Field(description="What to run.")
