"""``status`` of a job, as the controller writes it and everyone else reads it.

Unknown fields are kept, so that an older controller does not erase a newer one's notes. Fields
named ``internal`` are the controller's bookkeeping: persisted, never documented as stable.
"""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

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
        "`TensorBoard`, of the files that it writes for one. `Collectives`: no step is known.",
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


Seconds = Annotated[float, Field(ge=0)]


class Spent(OpenModel):
    """Seconds by what they were spent on; what is absent took none."""

    queued: Seconds | None = Field(
        default=None, description="Seconds in which a queue or the scheduler had no place for it."
    )
    starting: Seconds | None = Field(
        default=None, description="Seconds until all replicas ran, at first and after a pause."
    )
    training: Seconds | None = Field(
        default=None,
        description="Seconds in which all replicas ran, less those that were lost or in which they "
        "saved; where steps are told, from the first one on.",
    )
    saving: Seconds | None = Field(
        default=None,
        description="Seconds in which checkpoints were written that were not lost; absent where no "
        "replica tells it.",
    )
    lost: Seconds | None = Field(
        default=None,
        description="Seconds of training whose steps a restart has thrown away; absent where no "
        "replica tells its steps.",
    )
    hung: Seconds | None = Field(default=None, description="Seconds in which it hung.")
    restarting: Seconds | None = Field(
        default=None, description="Seconds from a failure until all replicas ran again."
    )
    paused: Seconds | None = Field(default=None, description="Seconds in which it was paused.")


class AttemptGoodput(Spent):
    """What one attempt spent its time on."""

    number: int = Field(default=0, description="Its number in `attempts`.")


class Goodput(Spent):
    """What the job has spent its time on since it was created; the sum is all of it."""

    state: str | None = Field(
        default=None,
        description="On which of these time is spent since `asOf`; none after its end.",
    )
    as_of: Time | None = Field(default=None, description="Until when time is accounted for.")
    attempts: Items[AttemptGoodput] = Field(
        default=(), description="The same of the last ten attempts, oldest first."
    )


class BadNode(OpenModel):
    """A node that did badly in the check before the start."""

    replica: str = Field(default="", description="Name of the pod whose node it is.")
    node: str = Field(default="", description="Name of the node.")
    reason: str = Field(default="", description="What it did.")
    avoided: bool = Field(
        default=False,
        description="Whether the replica gets another pod since the job's pods are kept off it.",
    )


class CheckMember(OpenModel):
    """A replica that takes part in a check, and where the others find it."""

    replica: str = Field(default="", description="Name of the pod.")
    host: str = Field(default="", description="What its peers call it.")
    port: int = Field(default=0, description="Where it listens.")


class NodeCheckStatus(OpenModel):
    """The check of the nodes before the last start of all replicas."""

    attempt: int = Field(default=0, description="The attempt before which it was.")
    state: str = Field(
        default="",
        description="Checking; Passed; BadNodes; or Incomplete, where not all could be tested, or "
        "what failed cannot be laid to one node. Whatever it is, the commands start, if not on "
        "nodes that are avoided.",
    )
    message: str = Field(default="", description="What came of it.")
    time: Time | None = Field(default=None, description="When that was so.")
    bad_nodes: Items[BadNode] = Field(
        default=(), description="Nodes that did badly, eight at most."
    )
    members: Items[CheckMember] = Field(
        default=(), description="While it goes on, the replicas that take part."
    )
    avoided: Items[str] = Field(
        default=(),
        description="Nodes that the job's pods are kept off since they did badly, eight at most.",
    )
    avoidance_ended: Time | None = Field(
        default=None,
        description="Since when no node is avoided any more, as pods found no other for two "
        "minutes.",
    )


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
        default=None, description="Restarts of all replicas (ColossalAIJob, GenericJob)."
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
    node_check: NodeCheckStatus | None = Field(
        default=None,
        description="The check of the nodes before the last start (PyTorchTrainingJob); absent "
        "where `runPolicy.nodeCheck` asks for none.",
    )
    start_time: Time | None = Field(
        default=None, description="When the job first left Pending, or was last resumed."
    )
    completion_time: Time | None = Field(default=None, description="When the job ended.")
    observed_generation: int | None = Field(
        default=None, description="`metadata.generation` that this status is about."
    )
    attempts: Items[Attempt] = Field(default=(), description="The last ten attempts, oldest first.")
    goodput: Goodput | None = Field(
        default=None, description="What its wall time was spent on, from its creation on."
    )
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
