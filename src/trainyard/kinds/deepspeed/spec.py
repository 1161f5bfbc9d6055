"""DeepSpeedJob: training launched by ``deepspeed`` over ssh from worker-0."""

from typing import Annotated, Literal

from pydantic import Field

from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.run_policy import (
    MANAGED_BY,
    RUN_MODE,
    SCHEDULER,
    Elastic,
    ElasticRange,
    RestartPolicyName,
    RunMode,
    SchedulePolicy,
    SshRunPolicy,
)
from trainyard.kinds.shared.workload import RestartPolicy
from trainyard.schema.model import INT32_MAX, Count, Items, Model, TrainingTemplate

LEGACY_MASTER = "master"
"""The replica type that means worker-0, in run modes only."""


class RunType(Model):
    """What the launcher starts; exactly one of the three."""

    python: Items[str] | None = Field(
        default=None,
        description="A Python script and its arguments.",
        examples=[["train.py", "--fp16"]],
    )
    module: Items[str] | None = Field(
        default=None, description="A Python module and its arguments."
    )
    exec: Items[str] | None = Field(default=None, description="A program and its arguments.")


class DeepSpeedConfig(Model):
    """How ``deepspeed`` launches the training."""

    custom_command: str | None = Field(
        default=None,
        description="Shell script that replaces the generated launch, of at most 192 KiB; all "
        "other options but `slotsPerWorker` are then ignored. It is run by /bin/sh on worker-0, in "
        "the working directory, once every worker's sshd answers; TRAINYARD_HOSTFILE is the path "
        "of a hostfile of the workers that do, and `ssh`, `scp` and `sftp` lead to them.",
    )
    slots_per_worker: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = Field(
        default=None,
        description="Processes per worker. Defaults to the GPUs of the training container, else 1.",
        examples=[8],
    )
    local_rank: bool = Field(
        default=True,
        description="Whether the program gets --local_rank. Defaults to true.",
        examples=[False],
    )
    autotune: Literal["none", "tune", "run"] = Field(
        default="none",
        description="Search for a good configuration: none, tune (search only) or run (search, "
        "then train). Defaults to none.",
        examples=["tune"],
    )
    run: RunType = Field(
        default_factory=RunType.empty,
        description="What to start.",
        examples=[{"python": ["train.py", "--deepspeed_config", "ds.json"]}],
    )
    other_args: Items[str] = Field(
        default=(),
        description="Further options of deepspeed. Its hosts are called worker-0, worker-1 and so "
        "on, e.g. in --include and --exclude.",
        examples=[["--master_port", "12346"]],
    )


class Worker(Model):
    """The workers."""

    replicas: Count = Field(
        default=1,
        description="Number of workers; ignored when the job is elastic. Defaults to 1.",
        examples=[4],
    )
    restart_policy: RestartPolicyName = Field(
        default=RestartPolicy.ON_FAILURE,
        description="Always, OnFailure, Never or ExitCode (restart 130, 137, 138 and 143 only). "
        "Defaults to OnFailure.",
        examples=["ExitCode"],
    )
    template: TrainingTemplate = Field(
        default={},
        description="The pod, a core/v1 PodTemplateSpec. Its restartPolicy is ignored. The "
        "training container is the one named worker, else the first.",
        examples=[{"spec": {"containers": [{"name": "worker", "image": "deepspeed"}]}}],
    )


class DeepSpeedJobSpec(Model):
    """What to run."""

    config: DeepSpeedConfig | None = Field(
        default=None,
        description="How to launch; may be absent in debug mode only.",
        examples=[{"slotsPerWorker": 2, "run": {"python": ["train.py"]}}],
    )
    disable_custom_env: bool = Field(
        default=False,
        description="Keep the environment variables of the template from the training "
        "processes; the container's own process has them. Defaults to false.",
    )
    worker: Worker = Field(
        description="The workers.",
        examples=[
            {
                "replicas": 2,
                "template": {"spec": {"containers": [{"name": "worker", "image": "deepspeed"}]}},
            }
        ],
    )
    run_mode: RunMode = RUN_MODE
    run_policy: SshRunPolicy = Field(
        default_factory=SshRunPolicy.empty,
        description="Limits of the run, and what happens after it.",
        examples=[{"backoffLimit": 3, "cleanUpPolicy": "Unfinished"}],
    )
    scheduler: SchedulePolicy | None = SCHEDULER
    managed_by: str | None = MANAGED_BY
    elastic: Elastic = Field(
        default_factory=Elastic.empty,
        description="Change the number of workers while training.",
        examples=[{"enabled": True, "minReplicas": 2, "maxReplicas": 8, "expectedReplicas": 4}],
    )

    @property
    def elastic_range(self) -> ElasticRange | None:
        """Bounds and target; None when the job is not elastic."""
        return self.elastic.range(self.worker.replicas) if self.elastic.enabled else None


class DeepSpeedJob(Job):
    """Distributed training with DeepSpeed."""

    kind: str = Field(default="DeepSpeedJob", description="Always `DeepSpeedJob`.")
    spec: DeepSpeedJobSpec = Field(description="What to run.")
