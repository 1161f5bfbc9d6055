"""Fields of specs that several kinds share: run mode, run policy, elasticity and scheduler."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, Strict, WithJsonSchema

from trainyard.kinds.kind import BACKOFF_LIMIT, LAUNCH_TIMEOUT_SECONDS, MIN_REPLICAS
from trainyard.kinds.shared import workload
from trainyard.kinds.shared.failure_policy.failure_policy_spec import (
    POD_FAILURE_POLICY,
    PodFailurePolicy,
)
from trainyard.kinds.shared.hang.hang_spec import HANG, OBSERVE, Hang
from trainyard.kinds.shared.workload import RestartPolicy, Scope
from trainyard.schema.model import INT64_MAX, Count, Items, Model

SSHD_PATH = "/usr/sbin/sshd"
AUTH_PATH = "/root/.ssh"
"""Where the keys are mounted (decision 4)."""
HOSTFILE_PATH = "/t9k/hostfile"
WORKER = "worker"
"""The replica type that serves ssh, in kinds that launch over it."""
RestartPolicyName = Annotated[
    RestartPolicy,
    Strict(False),
    WithJsonSchema({"enum": [policy.value for policy in RestartPolicy], "type": "string"}),
]
CleanUpPolicy = Literal["None", "Unfinished", "All"]
"""Which pods go when the job has ended."""
RestartScope = Literal["Job", "Replica"]


class ModeEntry(Model):
    """How one replica type starts in a run mode."""

    type: str = Field(description="Replica type that this entry is about.", examples=["worker"])
    skip_init_container: bool = Field(
        default=False, description="Leave the init containers out. Defaults to false."
    )


class ReplicaDebugSet(ModeEntry):
    """How one replica type starts in debug mode."""

    command: Items[str] | None = Field(
        default=None,
        description="Command that replaces the training container's, of a GenericJob every "
        "container's; args are cleared. "
        "Defaults to ['sleep', 'inf'], for a DeepSpeedJob to ['/usr/sbin/sshd', '-D'].",
        examples=[["sleep", "inf"]],
    )


class DebugMode(Model):
    """Create the environment of the job without starting the training."""

    enabled: bool = Field(
        default=False, description="Whether to use debug mode. Defaults to false."
    )
    replica_specs: Items[ReplicaDebugSet] = Field(
        default=(), description="Overrides per replica type. Types not listed use the defaults."
    )


class ResumeSpec(ModeEntry):
    """How one replica type starts after a pause."""

    command: Items[str] | None = Field(
        default=None,
        description="Command that replaces the whole launch. Defaults to the launch of "
        "immediate mode.",
        examples=[["python", "resume.py"]],
    )
    args: Items[str] | None = Field(
        default=None,
        description="Arguments that replace the script's; they stay wrapped in the generated "
        "launch. Defaults to the arguments of immediate mode.",
        examples=[["train.py", "--resume"]],
    )


class PauseMode(Model):
    """Keep the job but delete its pods, to free their resources."""

    enabled: bool = Field(
        default=False,
        description="Whether the job is paused. May change at any time. Defaults to false.",
    )
    resume_specs: Items[ResumeSpec] = Field(
        default=(), description="Overrides per replica type from the first resume on. Immutable."
    )


class RunMode(Model):
    """Immediate (the default), debug or pause mode. Pause wins over debug."""

    debug: DebugMode = Field(
        default_factory=DebugMode.empty,
        description="Debug mode: pods with everything in place, waiting for a developer.",
        examples=[{"enabled": True, "replicaSpecs": [{"type": "worker"}]}],
    )
    pause: PauseMode = Field(
        default_factory=PauseMode.empty,
        description="Pause mode: no pods while it is on.",
        examples=[{"enabled": True}],
    )


RUN_MODE = Field(default_factory=RunMode.empty, description="Immediate, debug or pause mode.")
"""`run_mode` of every spec."""
CLEAN_UP_POLICY: CleanUpPolicy = Field(
    default="None",
    description="Pods to delete when the job has ended: None, Unfinished (Pending, Running "
    "and Unknown ones) or All. Defaults to None.",
    examples=["Unfinished"],
)


RESTART_JUDGE: bool = Field(
    default=False,
    description="Ours. Whether a replica fails for good, instead of spending what is left of its "
    "restarts, when it has failed twice in a row by one lasting cause with nothing gained in "
    "between: the same exception at the same line, the same exit, or too little memory. What may "
    "pass, such as a lost connection, never counts. Defaults to false: it is told only.",
    examples=[True],
)
"""`restart_judge` of every `run_policy` (decision 229)."""
BackoffReset = Literal["Never", "OnProgress"]
BACKOFF_RESET: BackoffReset = Field(
    default="Never",
    description="Ours. OnProgress: restarts are counted anew when the job has got further since "
    "the last one that was counted, by a newer checkpoint, or by a higher step where no "
    "checkpoint is told (see `status.progress`). Defaults to Never.",
    examples=["OnProgress"],
)
"""`backoff_reset` of every `run_policy` (decision 232)."""

RESTART_MODE: Literal["Recreate", "InPlace"] = Field(
    default="Recreate",
    description="Ours. InPlace: a restart of all replicas ends their processes and starts the "
    "command again in the pods that are there, as long as all are healthy; else, and under "
    "Recreate, it makes new pods. What is counted, told and waited for is the same. It needs a "
    "shell and a Python (3.8 or newer) in the image; not for elastic jobs. Defaults to Recreate.",
    examples=["InPlace"],
)
"""`restart_mode` of the `run_policy` of kinds that can (decision 283)."""


class RunPolicy(Model):
    """Limits of a run, and what happens after it."""

    active_deadline_seconds: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = Field(
        default=None,
        description="Seconds from the moment when the job first leaves Pending until it fails; "
        "restarted by a resume. Unset means no limit.",
        examples=[86400],
    )
    backoff_limit: Count = Field(
        default=BACKOFF_LIMIT,
        description="Restarts that the whole job may spend; failures of several replicas "
        "in one incident cost one. Defaults to 3.",
        examples=[3],
    )
    clean_up_policy: CleanUpPolicy = CLEAN_UP_POLICY
    ttl_seconds_after_finished: Count | None = Field(
        default=None,
        description="Seconds after its end when the job deletes itself. Unset means never.",
        examples=[604800],
    )
    restart_scope: RestartScope | None = Field(
        default=None,
        description="Whether a failure restarts the whole job or the failed replica only. "
        "Unset, plain launching restarts the job, torchrun the failed replicas.",
        examples=["Job"],
    )
    pod_failure_policy: PodFailurePolicy | None = POD_FAILURE_POLICY
    restart_judge: bool = RESTART_JUDGE
    backoff_reset: BackoffReset = BACKOFF_RESET
    observe: bool | None = OBSERVE
    hang: Hang = HANG


RUN_POLICY = Field(
    default_factory=RunPolicy.empty,
    description="Limits of the run, and what happens after it.",
    examples=[{"backoffLimit": 3, "cleanUpPolicy": "Unfinished"}],
)
"""`run_policy` of specs that have all of its fields."""


LAUNCH_TIMEOUT: int = Field(
    default=LAUNCH_TIMEOUT_SECONDS,
    ge=1,
    le=INT64_MAX,
    description="Seconds that a launch over ssh may take, from the moment when all replicas run "
    "until the training begins; then it fails, as any replica may, and restartPolicy says what "
    "follows. Defaults to 600.",
    examples=[600],
)
"""`launch_timeout_seconds` of the policies of kinds that launch over ssh (decision 101)."""


def workload_fields(policy: object) -> dict[str, Any]:
    """The fields of a `Workload` that follow from a `run_policy`, of whatever kind."""
    failures: PodFailurePolicy | None = getattr(policy, "pod_failure_policy", None)
    rules = failures.rules if failures is not None else ()
    fields: dict[str, Any] = {
        "pod_failure_rules": tuple(rule.compiled() for rule in rules),
        "restart_judge": getattr(policy, "restart_judge", False),
        "resets_budget_on_progress": getattr(policy, "backoff_reset", "Never") == "OnProgress",
    }
    if isinstance(policy, RunPolicy):
        fields |= {
            "scope": Scope.REPLICA if policy.restart_scope == "Replica" else Scope.JOB,
            "clean_up": workload.CleanUpPolicy(policy.clean_up_policy),
            "active_deadline_seconds": policy.active_deadline_seconds,
            "ttl_seconds_after_finished": policy.ttl_seconds_after_finished,
        }
    return fields


class SshRunPolicy(RunPolicy):
    """Limits of a run, and what happens after it."""

    launch_timeout_seconds: int = LAUNCH_TIMEOUT


class ElasticRange(NamedTuple):
    """The sizes of an elastic job, defaults filled in."""

    minimum: int
    expected: int
    maximum: int


class Elastic(Model):
    """Run with as many replicas as fit, and change their number while training."""

    enabled: bool = Field(
        default=False, description="Whether the job is elastic. Defaults to false."
    )
    min_replicas: Count = Field(
        default=MIN_REPLICAS,
        description="The job runs from this many replicas up. Immutable. Defaults to 1.",
    )
    max_replicas: Count | None = Field(
        default=None,
        description="The job never has more replicas. Immutable. Defaults to expectedReplicas.",
        examples=[8],
    )
    expected_replicas: Count | None = Field(
        default=None,
        description="The wanted number of replicas; may change while the job runs, by hand or "
        "by `kubectl scale`. Defaults to the sum of the replica specs.",
        examples=[4],
    )

    def range(self, replicas: int) -> ElasticRange:
        """Bounds and target for a job whose replica specs sum up to ``replicas``."""
        expected = replicas if self.expected_replicas is None else self.expected_replicas
        maximum = expected if self.max_replicas is None else self.max_replicas
        return ElasticRange(self.min_replicas, expected, maximum)


Priority = Annotated[int, Field(ge=0, le=100)]


class QueueOnly(Model):
    """Schedule a pod through a Queue."""

    queue: str | None = Field(
        default=None,
        description="The Queue to wait in. Defaults to `default`.",
        examples=["default"],
    )


class T9kScheduler(QueueOnly):
    """Schedule the job's pods together, through a Queue."""

    priority: Priority = Field(
        default=10,
        description="Priority within the Queue, 0 to 100. Defaults to 10.",
        examples=[50],
    )


class SchedulePolicy(Model):
    """The scheduler of the job's pods; unset means the cluster's default scheduler."""

    t9k_scheduler: T9kScheduler | None = Field(
        default=None,
        alias="t9kScheduler",
        description="Use the T9k scheduler: one PodGroup for all pods of the job.",
        examples=[{"queue": "default", "priority": 50}],
    )


SCHEDULER = Field(
    default=None, description="The scheduler. Defaults to the cluster's default scheduler."
)
"""`scheduler` of every spec."""


MANAGED_BY: str | None = Field(
    default=None,
    # As of a Job of Kubernetes: https://kubernetes.io/docs/concepts/workloads/controllers/job/
    # #delegation-of-managing-a-job-object-to-external-controller
    max_length=63,
    pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
    r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$",
    description="The controller that looks after the job; ours leaves one alone that names "
    "another, as `kueue.x-k8s.io/multikueue` is. Immutable. Defaults to ours, "
    "`trainyard.dev/operator`.",
    examples=["kueue.x-k8s.io/multikueue"],
)
"""`managed_by` of every spec (decision 173)."""


class UnrankedT9kScheduler(T9kScheduler):
    """Schedule the job's pods together, through a Queue."""

    priority: Priority = Field(
        default=0, description="Priority within the Queue, 0 to 100. Defaults to 0.", examples=[50]
    )


class UnrankedSchedulePolicy(SchedulePolicy):
    """The scheduler of the job's pods; unset means the cluster's default scheduler."""

    t9k_scheduler: UnrankedT9kScheduler | None = Field(
        default=None,
        alias="t9kScheduler",
        description="Use the T9k scheduler: one PodGroup for all pods of the job.",
        examples=[{"queue": "default", "priority": 50}],
    )


class ReplicaRestartPolicy(Model):
    """When and how often a replica is restarted (GenericJob and ColossalAIJob)."""

    policy: Literal["Always", "OnFailure", "Never"] = Field(
        default="OnFailure",
        description="Always, OnFailure or Never. Defaults to OnFailure.",
        examples=["OnFailure"],
    )
    limit: Count = Field(
        default=0,
        description="Restarts allowed per replica; 0 means none. Defaults to 0.",
        examples=[3],
    )
