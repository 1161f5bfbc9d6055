"""Phases, condition types and reasons that users and their tools read (decision 34).

The values are part of the API: they never change.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from trainyard.kube import embedded_contract

NEVER_HERE = embedded_contract.NEVER_HERE
"""In the condition of a pod that asks for more than the one node of an embedded cluster has."""

NO_ROOM = (
    r"(?i)No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing"
    r"|inline_container\.cc:\d+\] \. unexpected pos"
)
"""What programs log when a disk is full. The last two are of torch.save, which hides the system's
error."""


class Phase(StrEnum):
    """``status.phase`` of a job."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


STOPPED = "Stopped"
"""Reason of a replica that was stopped because its job had ended; the kubelet calls it
DeadlineExceeded, after the means."""
HUNG = "Hung"
"""Why a replica failed, or an attempt was ended, whose ranks got nowhere."""
LAUNCH_TIMEOUT = "LaunchTimeout"
"""Why a launching replica failed that has taken too long."""
GIVEN_UP = frozenset({HUNG, LAUNCH_TIMEOUT})
"""Why replicas failed that ran. They are stopped, and what they answer to that says nothing; what
is told of it is the controller's, and no log's."""


class ConditionType(StrEnum):
    """Types of ``status.conditions``, in the order in which they are listed.

    Launched: decision 100; Hung: 225; RanksApart: 364.
    """

    INITIALIZED = "Initialized"
    RUNNING = "Running"
    FAILED = "Failed"
    COMPLETED = "Completed"
    REPLICA_FAILURE = "ReplicaFailure"
    PAUSED = "Paused"
    LAUNCHED = "Launched"
    HUNG = "Hung"
    RANKS_APART = "RanksApart"


class ConditionReason(StrEnum):
    """Reasons of conditions.

    Repeated causes: decision 229; preflight: 128; Kueue: 170; hangs: 225.
    """

    NONE = "-"
    NOT_FINISHED = "NotFinished"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    FINISHED = "Finished"
    ERROR_IN_POD = "ErrorInPod"
    INVALID_SPEC = "InvalidSpec"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    RESTARTS_IN_VAIN = "RestartsInVain"
    NAME_CONFLICT = "NameConflict"
    CREATION_REFUSED = "CreationRefused"
    UNSCHEDULABLE = "Unschedulable"
    NO_GANG_SCHEDULER = "NoGangScheduler"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    QUEUE_MAX_DURATION = embedded_contract.QUEUE_MAX_DURATION
    LAUNCH_WAITS = "LaunchWaits"
    HOSTS_DIFFER = "HostsDiffer"
    PREFLIGHT_FAILED = "PreflightFailed"
    WAITS_FOR_ADMISSION = "WaitsForAdmission"
    EVICTED = "Evicted"
    FLAVOR_UNKNOWN = "FlavorUnknown"
    HUNG = "Hung"
    COLLECTIVES_DIFFER = "CollectivesDiffer"
    RANK_STOPPED = "RankStopped"
    HANG_SUSPECTED = "HangSuspected"
    WAITS_FOR_BUSY = "WaitsForBusyRank"
    SLEEPS = "AllSleep"
    NEVER_MET = "NeverMet"
    GROUPS_APART = "SeparateGroups"
    NOT_OBSERVED = "CollectivesNotObserved"


ENDED_FROM_OUTSIDE = (ConditionReason.DEADLINE_EXCEEDED, ConditionReason.QUEUE_MAX_DURATION)
"""Reasons of a failed job that no replica of it is to blame for."""


class EventReason(StrEnum):
    """Reasons of Events on the job.

    Stragglers: decision 287; ranks that never met: 364. A policy of its own
    may have a reason of its own.
    """

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
    LAUNCH_WAITS = "LaunchWaits"
    HOSTS_DIFFER = "HostsDiffer"
    EVICTED = "Evicted"
    ADMITTED = "Admitted"
    FLAVOR_UNKNOWN = "FlavorUnknown"
    HUNG = "Hung"
    WAITING_RANKS = "WaitingRanks"
    NOT_OBSERVED = "CollectivesNotObserved"
    STRAGGLER = "Straggler"
    RANKS_APART = "RanksApart"


def launch_wait_message(message: str) -> str:
    """What a launch waits for, by the message of its failed startup probe; "" for any other.

    The kubelet's own words come first in it (decision 100).
    """
    return message.partition("trainyard: ")[2].strip()


_FAILURE = re.compile(
    r"Pod\[(?P<pod>[^]]+)\] (?:exited with error code (?P<code>-?\d+)|failed)"
    r"(?: \((?P<why>[^()\n]+)\))?(?:: (?P<output>.+?))?"
    r"(?:\nFailure \d+ in a row by .+, with nothing gained in between: a restart will not help\.)?",
    re.DOTALL,
)
"""Of the condition ReplicaFailure, as `lifecycle.texts` says it."""


class ToldFailure(NamedTuple):
    """What the message of a condition ReplicaFailure tells; empty where it does not."""

    pod: str = ""
    code: int | None = None
    reason: str = ""
    output: str = ""
    """What the pod wrote last, or what is said of one that was given up."""


def parse_failure_message(message: str) -> ToldFailure:
    """What the message of a condition ReplicaFailure tells."""
    found = _FAILURE.fullmatch(message)
    if found is None:
        return ToldFailure()
    code = int(found["code"]) if found["code"] else None
    return ToldFailure(found["pod"], code, found["why"] or "", found["output"] or "")


_PREFLIGHT = "preflight: "
_PREFLIGHT_FAILED = re.compile(
    r"^trainyard: (?:cannot start: )?\S+: the preflight failed with exit code \d+: (.+)$",
    re.MULTILINE,
)
"""Both as `payloads.launch.launch_runner` says them."""


def preflight_difference(message: str) -> str:
    """How the hosts of a starting launch differ; "" where the message is about anything else."""
    return message.removeprefix(_PREFLIGHT) if message.startswith(_PREFLIGHT) else ""


def preflight_failure(message: str) -> str:
    """What a launch lacked on its hosts, by its termination message; "" if it lacked nothing."""
    found = _PREFLIGHT_FAILED.search(message)
    return found[1] if found else ""


_REPORT = re.compile(
    r"^(?:[^\n]*torch/distributed/elastic/multiprocessing/api\.py:\d+\] failed .*"
    r"|={20,}\n[^\n]* FAILED *\n-{20,}.*)\Z",
    re.MULTILINE | re.DOTALL,
)
_AGENT = re.compile(r"^[WEI]\d{4} [^\n]*torch/distributed/elastic/[^\n]*\n?", re.MULTILINE)
"""What torchrun writes when a rank has failed. The cause is what the rank itself wrote before."""


def without_torchrun_report(message: str) -> str:
    """The message without torchrun's report at its end, unless there is nothing else in it."""
    rest = _AGENT.sub("", _REPORT.sub("", message))
    return rest if rest.strip() else message
