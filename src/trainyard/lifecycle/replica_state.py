"""How one replica stands, judged by its pod alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from trainyard.kinds.shared.workload import FailureAction
from trainyard.lifecycle.observed import Container, Pod
from trainyard.schema.dataclass import dataclass


class State(Enum):
    """Where a replica stands, and the phase that its status tells."""

    CREATING = "Creating"
    """No pod yet, or one that no node has."""
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    TAKEN = "Deleted"
    """Deleted by somebody else: gone, or on its way."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule of `podFailurePolicy` says of an end; `text` names the rule and what it matched.

    `is_cause`: such an end is hardly ever the fallout of another. `by_code`: an exit code matched,
    rather than what the cluster says of the pod. `taken`: it was taken away, and is not to come
    back for free.
    """

    action: FailureAction
    text: str
    is_cause: bool
    by_code: bool
    taken: bool = False

    @property
    def decides(self) -> str:
        """What the rule does, in words."""
        return f"{self.text} {_ACTION_TEXTS[self.action]}"

    @property
    def decided_last(self) -> str:
        """The same of the end of a job, after which nothing restarts."""
        if self.action is FailureAction.RESTART:
            return f"{self.text} would restart, but its restarts are used up"
        return self.decides

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Ruling:
        """From `status.internal`."""
        marks = {mark: obj.get(name, False) for mark, name in _FLAGS.items()}
        return cls(FailureAction(obj["action"]), obj["text"], **marks)

    def encode(self) -> dict[str, Any]:
        """For `status.internal`."""
        marks = {name: True for mark, name in _FLAGS.items() if getattr(self, mark)}
        return {"action": self.action.value, "text": self.text, **marks}


_FLAGS = {"is_cause": "tells", "by_code": "byCode", "taken": "taken"}
"""What else a ruling says, by the names in `status.internal`."""


_ACTION_TEXTS = {
    FailureAction.FAIL_JOB: "fails the job",
    FailureAction.IGNORE: "ignores this failure",
    FailureAction.COUNT: "counts this failure",
    FailureAction.RESTART: "restarts after this failure",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a replica ended. `free`: not by its own fault, or by a rule, so that a restart costs
    nothing."""

    code: int | None = None
    reason: str = ""
    message: str = ""
    at: datetime | None = None
    free: bool = False
    init_container: str = ""
    """Name of the init container that failed, if one did."""
    ruling: Ruling | None = None
    """Decision 114; None where no rule says anything else than what follows anyway."""

    @property
    def is_permanent(self) -> bool:
        """Whether it could not start, and another try would end the same way (decision 102)."""
        from trainyard.evidence.start_failures import never_starts  # starting up needs it not

        return never_starts(self.reason, self.message) != ""


DISRUPTIONS = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""Pod reasons by which the kubelet says that it took a pod away, or would not take it
(pkg/kubelet: eviction, nodeshutdown, preemption, lifecycle). `OutOf…` belongs to them."""

VANISHED = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Container reasons by which the kubelet and containerd say that they lost sight of it, as after
a reboot of the node: its exit code is made up."""

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Pod reason by which a kubelet says that the pod's `activeDeadlineSeconds` are over."""
# Must be positive, and is one of the few fields of a pod that may be set later:
# https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
STOP_SECONDS = 1
"""The smallest `activeDeadlineSeconds`, which we set: an active pod is stopped at once."""

MAX_DURATION = "MaxDuration"
"""Part of the DisruptionTarget reason of a pod that its queue's `maxDuration` removed."""


def exit_of(pod: Pod, main_container: str | None) -> Exit | None:
    """How the pod's replica ended; None while it has not.

    The main container's end is the replica's, whatever its sidecars do. An end that followed a
    deletion says nothing about the training: a script may well answer SIGTERM with exit code 0. An
    exit 0 of a pod that was evicted is `free` for the same reason.
    """
    # Decision 21: in training kinds one container decides, elsewhere the phase of the pod.
    main = pod.container(main_container) if main_container is not None else None
    if main is not None and main.state == "Terminated":
        found = _exit_of_container(pod, main)
    elif pod.phase == "Succeeded":
        found = Exit(code=0, at=_last_end(pod))
    elif pod.phase == "Failed":
        found = _exit_of_failed_pod(pod)
    else:
        return None
    return None if _followed_deletion(pod, found) else found


def is_disruption(pod: Pod) -> bool:
    """Whether the pod failed because the cluster took it away."""
    # Decision 24: such an end costs nothing. Most are told by the condition DisruptionTarget, some
    # of the kubelet's by the pod's reason only:
    # https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    return (
        bool(pod.disruption)
        or pod.reason in DISRUPTIONS
        or pod.reason.startswith("OutOf")
        or any(c.failed and c.reason in VANISHED for c in pod.containers)
    )


def deletion_requested(pod: Pod) -> datetime | None:
    """When its deletion was asked for: deletionTimestamp is the end of the grace period."""
    if pod.deleting is None:
        return None
    return pod.deleting - timedelta(seconds=pod.grace_seconds or 0)


def _followed_deletion(pod: Pod, found: Exit) -> bool:
    # Times have whole seconds: an end in the same second is taken to have followed.
    requested = deletion_requested(pod)
    return requested is not None and (found.at is None or found.at >= requested)


def _exit_of_container(pod: Pod, container: Container) -> Exit:
    free = is_disruption(pod) and (container.failed or pod.phase == "Failed")
    return Exit(
        code=container.exit_code,
        reason=(free and (pod.reason or pod.disruption)) or container.reason or "Error",
        message=container.message,
        at=container.ended,
        free=free,
        init_container=container.name if container.is_init and not container.is_sidecar else "",
    )


def _exit_of_failed_pod(pod: Pod) -> Exit:
    # A reason of the pod itself (DeadlineExceeded, Evicted) goes before those of its containers.
    failed = [each for each in pod.containers if each.failed and not each.is_sidecar]
    first = min(failed, key=_end_or_never, default=None)
    if first is not None and not pod.reason:
        return _exit_of_container(pod, first)
    return Exit(
        code=first.exit_code if first else None,
        reason=pod.reason or "Error",
        message=pod.message or (first.message if first else ""),
        at=first.ended if first else None,
        free=is_disruption(pod),
        init_container=first.name if first is not None and first.is_init else "",
    )


def _end_or_never(container: Container) -> float:
    return container.ended.timestamp() if container.ended else float("inf")


def _last_end(pod: Pod) -> datetime | None:
    return max((c.ended for c in pod.containers if c.ended), default=None)
