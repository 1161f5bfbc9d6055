"""What a follower knows of jobs: decoded from the cluster's objects, ready to be shown.

Pure data, so that the live table, the plain lines and the summary all say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.schema.times import parse


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container; `exit_code` once it has ended."""

    name: str
    has_started: bool
    exit_code: int | None
    reason: str
    last_words: str


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a job."""

    uid: str
    namespace: str
    name: str
    replica: str
    rank: tuple[str, int]
    phase: str
    containers: tuple[ContainerView, ...]
    message: str
    attempt: str
    is_deleting: bool

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> PodView:
        """From a pod object."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        marks = metadata.get("labels") or {}
        kind, index = marks.get(labels.REPLICA_TYPE, ""), marks.get(labels.REPLICA_INDEX, "0")
        return cls(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            replica=_replica(metadata["name"], kind, index),
            rank=(kind, int(index) if index.isdigit() else 0),
            phase=status.get("phase") or "Pending",
            containers=tuple(_containers(status)),
            message=_message(status),
            attempt=(metadata.get("annotations") or {}).get(labels.ATTEMPT, ""),
            is_deleting="deletionTimestamp" in metadata,
        )

    @property
    def failed_container(self) -> ContainerView | None:
        """The first container that ended with an error."""
        return next((c for c in self.containers if c.exit_code), None)


@dataclass(slots=True)
class JobView:
    """One job and its pods, kept up to date by a follower."""

    kind: str
    namespace: str
    name: str
    uid: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    is_deleted: bool = False

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's status; empty before the controller has seen it."""
        return self.raw.get("status") or {}

    @property
    def phase(self) -> str:
        """Pending until the controller says otherwise."""
        return self.status.get("phase") or "Pending"

    @property
    def is_over(self) -> bool:
        """Ended, or deleted by somebody."""
        return self.is_deleted or self.phase in ("Succeeded", "Failed")

    @property
    def run_mode(self) -> Mapping[str, Any]:
        """spec.runMode."""
        return (self.raw.get("spec") or {}).get("runMode") or {}

    @property
    def is_paused(self) -> bool:
        """Asked to be paused."""
        return bool((self.run_mode.get("pause") or {}).get("enabled"))

    @property
    def restarts(self) -> int:
        """Restarts of all replicas."""
        tasks = self.status.get("tasks") or ()
        return max(
            sum(task.get("restartCount") or 0 for task in tasks),
            self.status.get("backoffCount") or 0,
        )

    @property
    def aggregate(self) -> Mapping[str, int]:
        """Replicas per phase."""
        return self.status.get("aggregate") or {}

    @property
    def seconds(self) -> float | None:
        """From creation to the end, or to now."""
        start = parse((self.raw.get("metadata") or {}).get("creationTimestamp"))
        if start is None:
            return None
        end = parse(self.status.get("completionTime")) or datetime.now(UTC)
        return max((end - start).total_seconds(), 0.0)

    @property
    def viewer(self) -> Mapping[str, Any]:
        """What the status says of the job's TensorBoard; empty for a job without one."""
        return self.status.get("tensorboard") or {}

    @property
    def viewer_url(self) -> str:
        """Where its TensorBoard is."""
        return str(self.viewer.get("url") or "")

    @property
    def failure(self) -> str:
        """Why the job failed."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                return str(condition.get("message") or condition.get("reason") or "")
        return ""

    def ordered_pods(self) -> list[PodView]:
        """By replica type as the status lists them, then by index."""
        order = [task.get("type") for task in self.status.get("tasks") or ()]

        def key(pod: PodView) -> tuple[int, str, int]:
            kind, index = pod.rank
            return (order.index(kind) if kind in order else len(order), kind, index)

        return sorted(self.pods.values(), key=key)


def _replica(name: str, kind: str, index: str) -> str:
    if kind and name.endswith(f"-{kind}-{index}"):
        return f"{kind}-{index}"
    return kind or name


def _containers(status: Mapping[str, Any]) -> list[ContainerView]:
    found = []
    for container in [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]:
        state = container.get("state") or {}
        ended = state.get("terminated")
        found.append(
            ContainerView(
                name=container["name"],
                has_started=bool(ended) or "running" in state,
                exit_code=ended.get("exitCode", 0) if ended else None,
                reason=(ended or state.get("waiting") or {}).get("reason") or "",
                last_words=(ended or {}).get("message") or "",
            )
        )
    return found


def _message(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or "")
    return str(status.get("message") or "")
