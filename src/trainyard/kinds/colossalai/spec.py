"""ColossalAIJob: training launched by ``colossalai run`` over ssh from a launcher pod."""

from typing import Annotated

from pydantic import Field

from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    POD_FAILURE_POLICY,
    PodFailurePolicy,
)
from trainyard.kinds.shared.hang.hang_spec import HANG, OBSERVE, Hang
from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.run_policy import (
    AUTH_PATH,
    BACKOFF_RESET,
    LAUNCH_TIMEOUT,
    MANAGED_BY,
    RESTART_JUDGE,
    RUN_MODE,
    SCHEDULER,
    SSHD_PATH,
    BackoffReset,
    ReplicaRestartPolicy,
    RunMode,
    UnrankedSchedulePolicy,
)
from trainyard.schema.model import INT32_MAX, Count, Items, Model, Template

LAUNCHER = "launcher"


class SSHConfig(Model):
    """The ssh daemon of launcher and workers."""

    auth_mount_path: str = Field(
        default=AUTH_PATH,
        description="Where the keys are mounted, an absolute path. Defaults to /root/.ssh.",
        examples=["/root/.ssh"],
    )
    sshd_path: str = Field(
        default=SSHD_PATH,
        description="Absolute path of sshd. Defaults to /usr/sbin/sshd.",
        examples=["/usr/sbin/sshd"],
    )


class TorchConfig(Model):
    """How ``colossalai run`` launches the training."""

    proc_per_worker: Annotated[int, Field(ge=1, le=INT32_MAX)] = Field(
        default=1, description="Processes per worker. Defaults to 1.", examples=[8]
    )
    script: Items[str] = Field(
        default=(),
        description="The training script (a file ending in .py, or -m and a module) and its "
        "arguments.",
        examples=[["train.py", "--epochs", "3"]],
    )
    extra_args: Items[str] = Field(
        default=(),
        description="Options of torchrun, passed as --extra_launch_args.",
        examples=[["--max_restarts=3"]],
    )


class ColossalReplicaSpec(Model):
    """One type of replica: launcher or worker."""

    type: str = Field(
        description="`launcher` or `worker`.",
        examples=["worker"],
        json_schema_extra={"pattern": "^(launcher|worker)$"},
    )
    replicas: Count = Field(
        default=1,
        description="Number of replicas; one launcher exactly. Defaults to 1.",
        examples=[4],
    )
    restart_policy: ReplicaRestartPolicy = Field(
        default_factory=ReplicaRestartPolicy.empty,
        description="Restarts; launcher and workers start again together.",
        examples=[{"policy": "OnFailure", "limit": 1}],
    )
    template: Template = Field(
        default={},
        description="The pod, a core/v1 PodTemplateSpec. A worker needs a container named "
        "worker; the launcher may leave its own out.",
        examples=[{"spec": {"containers": [{"name": "worker", "image": "colossalai"}]}}],
    )


class ColossalRunPolicy(Model):
    """What follows from failures, and what happens after the run."""

    clean_up_workers: bool = Field(
        default=False,
        description="Delete the worker pods, never the launcher, when the job has ended. "
        "Defaults to false.",
        examples=[True],
    )
    pod_failure_policy: PodFailurePolicy | None = POD_FAILURE_POLICY
    restart_judge: bool = RESTART_JUDGE
    backoff_reset: BackoffReset = BACKOFF_RESET
    observe: bool | None = OBSERVE
    hang: Hang = HANG
    launch_timeout_seconds: int = LAUNCH_TIMEOUT


class ColossalAIJobSpec(Model):
    """What to run."""

    ssh: SSHConfig = Field(
        default_factory=SSHConfig.empty,
        description="The ssh daemon.",
        examples=[{"sshdPath": "/usr/sbin/sshd"}],
    )
    torch_config: TorchConfig = Field(
        default_factory=TorchConfig.empty,
        description="How to launch.",
        examples=[{"procPerWorker": 2, "script": ["train.py"]}],
    )
    replica_specs: Items[ColossalReplicaSpec] = Field(
        description="The launcher (supplied when missing) and the workers.",
        examples=[
            [
                {"type": "launcher", "template": {}},
                {
                    "type": "worker",
                    "template": {
                        "spec": {"containers": [{"name": "worker", "image": "colossalai"}]}
                    },
                },
            ]
        ],
    )
    run_mode: RunMode = RUN_MODE
    run_policy: ColossalRunPolicy = Field(
        default_factory=ColossalRunPolicy.empty,
        description="What follows from failures, and what happens after the run.",
    )
    scheduler: UnrankedSchedulePolicy | None = SCHEDULER
    managed_by: str | None = MANAGED_BY

    def replica(self, replica_type: str) -> ColossalReplicaSpec | None:
        """The entry of a type, if any."""
        return next((spec for spec in self.replica_specs if spec.type == replica_type), None)


class ColossalAIJob(Job):
    """Distributed training with ColossalAI."""

    kind: str = Field(default="ColossalAIJob", description="Always `ColossalAIJob`.")
    spec: ColossalAIJobSpec = Field(description="What to run.")
