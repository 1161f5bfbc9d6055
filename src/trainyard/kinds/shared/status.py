"""``status`` of a job, as the controller writes it and everyone else reads it.

Unknown fields are kept, so that an older controller does not erase a newer one's notes. Fields
named ``internal`` are the controller's bookkeeping: persisted, never documented as stable.
"""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from trainyard.kinds.shared.goodput.goodput_model import GOODPUT, Goodput
from trainyard.kinds.shared.node_check.node_check_model import NODE_CHECK_STATUS, NodeCheckStatus
from trainyard.schema.model import Items, OpenModel, Time


class ContainerStatus(OpenModel):
    """State of one container of a replica."""

    name: str = Field(default="", description="Name of the container.")
    role: str | None = Field(
        default=None,
        description="Init for an init container, Sidecar for one that goes on beside the others "
        "(restartPolicy Always); absent for the others.",
    )
    state: str = Field(default="", description="Waiting, Running or Terminated.")
    exit_code: int | None = Field(default=None, description="Exit code, once terminated.")
    reason: str | None = Field(
        default=None, description="Why the container is in this state, e.g. OOMKilled."
    )


class ReplicaStatus(OpenModel):
    """State of one replica."""

    name: str = Field(default="", description="Name of the replica's pod.")
    uid: str = Field(default="", description="UID of the replica's pod.")
    phase: str = Field(
        default="", description="Phase of the pod, or Creating or Deleted when there is none."
    )
    reason: str | None = Field(
        default=None, description="Why it failed, e.g. OOMKilled or Evicted."
    )
    containers: Items[ContainerStatus] = Field(default=(), description="State of its containers.")


class TaskStatus(OpenModel):
    """State of all replicas of one type."""

    type: str = Field(default="", description="Replica type.")
    restart_count: int = Field(default=0, description="Restarts of all replicas of this type.")
    replicas: Items[ReplicaStatus] = Field(default=(), description="One entry per replica.")


class Aggregate(OpenModel):
    """Replicas per phase; the sum is always the number of replicas wanted."""

    creating: int = Field(default=0, description="The pod is not there yet, or not scheduled.")
    pending: int = Field(default=0, description="Scheduled, but not all containers have started.")
    running: int = Field(default=0, description="All containers have started.")
    succeeded: int = Field(default=0, description="Ended with exit code 0.")
    failed: int = Field(default=0, description="Ended with another exit code.")
    unknown: int = Field(default=0, description="The node or the pod cannot be reached.")
    deleted: int = Field(default=0, description="Removed by pause or clean-up.")


class Condition(OpenModel):
    """One aspect of the job's state."""

    type: str = Field(default="", description="Which aspect, e.g. Running or Completed.")
    status: str = Field(default="", description="True, False or Unknown.")
    reason: str = Field(default="", description="One word on the last change.")
    message: str = Field(default="", description="One sentence on the last change.")
    last_transition_time: Time | None = Field(
        default=None, description="When `status` changed last."
    )


class SchedulingCondition(Condition):
    """One aspect of the state of a PodGroup or Queue."""

    type: str = Field(default="", description="Which aspect, e.g. GroupScheduled.")


class ObjectReference(OpenModel):
    """A reference to another object."""

    api_version: str = Field(default="", description="API version of the object.")
    kind: str = Field(default="", description="Kind of the object.")
    name: str = Field(default="", description="Name of the object.")
    namespace: str = Field(default="", description="Namespace of the object.")
    uid: str = Field(default="", description="UID of the object.")


class DependentStatus(OpenModel):
    """State of an object that the job created beside its pods."""

    name: str | None = Field(default=None, description="What the object is to the job.")
    dependent: ObjectReference | None = Field(default=None, description="The object.")
    ready: bool = Field(default=False, description="Whether the object can be used.")
    reason: str = Field(default="", description="One word on why it is ready or not.")
    action: str = Field(default="", description="What the controller did about it last.")
    note: str = Field(default="", description="One sentence on its state.")
    type: str = Field(default="Normal", description="Normal or Warning.")
    url: str | None = Field(default=None, description="Where it can be looked at.")


class Attempt(OpenModel):
    """One attempt at running the job, from its start to the incident that ended it."""

    number: int = Field(default=0, description="Counts from 1.")
    start_time: Time | None = Field(default=None, description="When its pods were created.")
    end_time: Time | None = Field(default=None, description="When it ended.")
    replica: str | None = Field(default=None, description="Pod whose end came first.")
    exit_code: int | None = Field(default=None, description="That pod's exit code.")
    reason: str | None = Field(default=None, description="Why it ended, e.g. OOMKilled or Evicted.")
    message: str | None = Field(default=None, description="One sentence on why it ended.")
    cause: str | None = Field(
        default=None,
        description="What its program ended by, where that may last: `ValueError: rate is negative "
        "(train.py:12 in main)`.",
    )
    repeated: int | None = Field(
        default=None,
        description="How many attempts in a row have ended by that cause, with nothing gained in "
        "between. From 2 on a restart will not help.",
    )
    last_seen: str | None = Field(
        default=None,
        description="Where the rank stood, by its last report, and how much memory it had: `rank 1 "
        "stood at train.py:12 in main, 5s before its end; its memory was 3,072 MiB`.",
    )


class Metric(OpenModel):
    """Something that the training measures."""

    name: str = Field(default="", description="As the training calls it, e.g. loss.")
    value: str = Field(default="", description="As it was told last.")


class CheckpointStatus(OpenModel):
    """A checkpoint that the training says to have written."""

    path: str = Field(default="", description="Where it is, as the replica sees it.")
    step: int | None = Field(default=None, description="Step whose result it holds.")
    time: Time | None = Field(default=None, description="When the controller heard of it.")


class CollectivesStatus(OpenModel):
    """What the collectives of a training tell of it; where no step is known, and nothing else."""

    count: int = Field(
        default=0, description="How many rank 0 has begun in its present process groups."
    )
    per_second: float | None = Field(
        default=None, description="Of the last minute, as the controller counts."
    )
    period_count: int | None = Field(
        default=None,
        description="How many collectives come again and again, the same ones in the same order. "
        "That may be a step, a part of one or several.",
    )
    period_seconds: float | None = Field(
        default=None, description="Seconds from one time to the next, in the median of the last."
    )


class Progress(OpenModel):
    """How far the training is, as its own replicas tell."""

    message: str = Field(
        default="", description="In one line, e.g. `step 1,200/10,000, 3.1 it/s, 47 min left`."
    )
    step: int | None = Field(default=None, description="Steps that are done.")
    total_steps: int | None = Field(default=None, description="Steps in all.")
    epoch: float | None = Field(default=None, description="Epochs that are done; may be a part.")
    percentage: int | None = Field(default=None, description="How much is done, from 0 to 100.")
    steps_per_second: float | None = Field(
        default=None, description="Of the last minute, as the controller counts."
    )
    remaining_seconds: int | None = Field(
        default=None, description="Seconds left, as of `lastReportTime`."
    )
    metrics: Items[Metric] = Field(default=(), description="What was measured last.")
    checkpoint: CheckpointStatus | None = Field(default=None, description="The last checkpoint.")
    replica: str = Field(default="", description="Name of the pod that told it.")
    source: str = Field(
        default="",
        description="Whence the step is known where the program itself does not tell it: "
        "`TensorBoard`, of the files that it writes for one; `Output`, of what it prints. "
        "`Collectives`: no step is known.",
    )
    collectives: CollectivesStatus | None = Field(
        default=None, description="Where no step is known: what its collectives tell."
    )
    last_report_time: Time | None = Field(
        default=None, description="When the controller heard of it last."
    )


class Straggler(OpenModel):
    """A rank for which the others wait again and again."""

    replica: str = Field(default="", description="Name of its pod.")
    attempt: int = Field(default=0, description="Which pod of that name it is.")
    rank: int = Field(default=0, description="Its rank.")
    late_percent: int | None = Field(
        default=None,
        description="For how much of the time between two collectives the others waited for it, in "
        "the median, when it was named.",
    )
    since: Time | None = Field(default=None, description="When it was named.")


class JobStatus(OpenModel):
    """What the controller observed last."""

    phase: str = Field(
        default="",
        description="Pending, Running, Paused, Resuming, Succeeded, Failed or Unknown.",
    )
    tasks: Items[TaskStatus] = Field(default=(), description="State per replica type.")
    aggregate: Aggregate | None = Field(default=None, description="Replicas per phase.")
    backoff_count: int | None = Field(
        default=None,
        description="Restarts spent of `backoffLimit` (PyTorchTrainingJob, DeepSpeedJob).",
    )
    restart_count: int | None = Field(
        default=None,
        description="Restarts, as the limit counts them: of the job, whose replicas start together "
        "(ColossalAIJob), or of each replica, added up (GenericJob).",
    )
    conditions: Items[Condition] = Field(default=(), description="Aspects of the job's state.")
    tensorboard: DependentStatus | None = Field(
        default=None, description="State of the TensorBoard (PyTorchTrainingJob)."
    )
    progress: Progress | None = Field(
        default=None,
        description="How far the training is, as its own replicas tell; absent where none does.",
    )
    stragglers: Items[Straggler] = Field(
        default=(),
        description="Ranks that are late at most of their last collectives, the latest ones, eight "
        "at most; absent where there is none, or none is observed.",
    )
    node_check: NodeCheckStatus | None = NODE_CHECK_STATUS
    start_time: Time | None = Field(
        default=None, description="When the job first left Pending, or was last resumed."
    )
    completion_time: Time | None = Field(default=None, description="When the job ended.")
    observed_generation: int | None = Field(
        default=None, description="`metadata.generation` that this status is about."
    )
    attempts: Items[Attempt] = Field(default=(), description="The last ten attempts, oldest first.")
    goodput: Goodput | None = GOODPUT
    replicas: int | None = Field(
        default=None, description="Replicas that exist, for `kubectl scale`."
    )
    selector: str | None = Field(default=None, description="Label selector of the job's pods.")
    spec_hash: str | None = Field(
        default=None,
        description="Hash of the spec that was admitted; later changes of immutable fields are "
        "ignored.",
    )
    internal: Annotated[
        dict[str, Any] | None,
        WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ] = Field(default=None, description="Bookkeeping of the controller; not a stable interface.")
