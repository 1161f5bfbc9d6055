"""Phases, condition types, reasons and texts that users and their tools read (decision 34).

The wording of the documented ones is fixed: scripts match on it. Those without a documented
wording are ours.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Phase(StrEnum):
    """``status.phase`` of a job."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class ReplicaPhase(StrEnum):
    """A replica's phase: the pod phases and two that stand for a pod that is not there."""

    CREATING = "Creating"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETED = "Deleted"


class ConditionType(StrEnum):
    """Types of ``status.conditions``, in the order in which they are listed."""

    INITIALIZED = "Initialized"
    RUNNING = "Running"
    FAILED = "Failed"
    COMPLETED = "Completed"
    REPLICA_FAILURE = "ReplicaFailure"
    PAUSED = "Paused"


class ConditionReason(StrEnum):
    """Reasons of conditions."""

    NONE = "-"
    NOT_FINISHED = "NotFinished"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    FINISHED = "Finished"
    ERROR_IN_POD = "ErrorInPod"
    INVALID_SPEC = "InvalidSpec"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    NAME_CONFLICT = "NameConflict"
    CREATION_REFUSED = "CreationRefused"
    UNSCHEDULABLE = "Unschedulable"
    NO_GANG_SCHEDULER = "NoGangScheduler"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    QUEUE_MAX_DURATION = "QueueMaxDuration"


class EventReason(StrEnum):
    """Reasons of Events on the job."""

    CREATED = "Created"
    NEW_REPLICA = "NewReplica"
    START = "Start"
    RUNNING = "Running"
    RESTART = "Restart"
    REPLICA_FAILURE = "ReplicaFailure"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    SCALED = "Scaled"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"
    CREATION_REFUSED = "CreationRefused"
    NO_GANG_SCHEDULER = "NoGangScheduler"
    SPEC_DRIFT = "SpecDrift"
    IGNORED_FIELD = "IgnoredField"


_REPORT = re.compile(
    r"^(?:[^\n]*torch/distributed/elastic/multiprocessing/api\.py:\d+\] failed .*"
    r"|={20,}\n[^\n]* FAILED *\n-{20,}.*)\Z",
    re.MULTILINE | re.DOTALL,
)
_AGENT = re.compile(r"^[WEI]\d{4} [^\n]*torch/distributed/elastic/[^\n]*\n?", re.MULTILINE)
"""What torchrun itself writes when a rank has failed; the cause is what the rank wrote before."""

INITIALIZED = "The job has been initialized successfully."
RUNNING = "All pods are running normally or have completed successfully."
STILL_RUNNING = "The job is still running."
FINISHED = "The job has finished successfully."


def created(kind: str, job: str) -> str:
    """Event ``Created``."""
    return f"A {kind} has been created: {job}"


def new_replica(pod: str) -> str:
    """Event ``NewReplica`` for a replica's first pod."""
    return f"Create the replica[{pod}] for the first time."


def recreated_replica(pod: str, attempt: int) -> str:
    """Event ``NewReplica`` for a replica's later pods; ``attempt`` counts from 1."""
    return f"Create the replica[{pod}] again, attempt {attempt}."


def began_running(timestamp: str) -> str:
    """Event ``Running``; ``timestamp`` reads ``2024-08-02 07:03:59.69 UTC``."""
    return f"The job began running at {timestamp}"


def job_failed(kind: str, job: str, pod: str, exit_code: int) -> str:
    """Condition ``Failed`` of a training job."""
    return f"{kind} {job} has failed: {pod} failed with exit code {exit_code}"


def failed_with_rule(rule_json: str) -> str:
    """Condition ``Failed`` of a job with failure rules; the rule's indexes are strings."""
    return f"The job is failed with rule: {rule_json}"


def pod_exited(pod: str, exit_code: int) -> str:
    """Condition ``ReplicaFailure``, reason ``ErrorInPod``."""
    return f"Pod[{pod}] exited with error code {exit_code}"


def without_report(message: str) -> str:
    """The message without torchrun's report at its end, unless nothing else is there."""
    rest = _AGENT.sub("", _REPORT.sub("", message))
    return rest if rest.strip() else message
