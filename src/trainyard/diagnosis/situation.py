"""What is known of a job when somebody asks what is the matter with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainyard.kinds.shared import names
from trainyard.kinds.shared.last_words import without_report
from trainyard.schema.times import parse

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """What is the matter, how that shows, and what can be done."""

    what: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, its pods and the events about both, as stored, the oldest event first."""

    job: Object
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    now: datetime = field(kw_only=True)
    is_local: bool = True
    """On the embedded cluster, where the remedies are other commands."""
    full_disk: str = ""
    """The state folder of the embedded cluster, if there is no room left in it."""

    @property
    def name(self) -> str:
        """Of the job."""
        return str(self.job["metadata"]["name"])

    @property
    def kind(self) -> str:
        """Of the job."""
        return str(self.job["kind"])

    @property
    def title(self) -> str:
        """`Kind namespace/name`."""
        return f"{self.kind} {self.job['metadata'].get('namespace', 'default')}/{self.name}"

    @property
    def base(self) -> str:
        """What the names of the job's pods begin with."""
        return names.base_name(self.name, self.job["metadata"].get("uid", ""))

    @property
    def spec(self) -> Object:
        """Of the job."""
        return self.job.get("spec") or {}

    @property
    def status(self) -> Object:
        """Of the job; empty before the controller has seen it."""
        return self.job.get("status") or {}

    @property
    def phase(self) -> str:
        """Of the job."""
        return str(self.status.get("phase") or "Pending")

    @property
    def is_deleting(self) -> bool:
        """Whether the job is on its way out."""
        return bool(self.job["metadata"].get("deletionTimestamp"))

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def run_mode(self) -> Object:
        """`spec.runMode`."""
        return self.spec.get("runMode") or {}

    @property
    def run_policy(self) -> Object:
        """`spec.runPolicy`."""
        return self.spec.get("runPolicy") or {}

    @property
    def internal(self) -> Object:
        """The controller's own notes."""
        return self.status.get("internal") or {}

    @property
    def is_elastic(self) -> bool:
        """Whether it runs with fewer replicas than expected, too."""
        return bool((self.spec.get("elastic") or {}).get("enabled"))

    def is_on(self, mode: str) -> bool:
        """Whether a run mode (`pause`, `debug`) is switched on."""
        return bool((self.run_mode.get(mode) or {}).get("enabled"))

    def condition(self, kind: str) -> Object:
        """A condition of the job; empty when there is none."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == kind:
                return dict(condition)
        return {}

    def replica(self, pod: Object | str) -> str:
        """`worker-0` of a pod or its name."""
        name = pod if isinstance(pod, str) else pod["metadata"]["name"]
        return str(name).removeprefix(f"{self.base}-")

    def ago(self, text: str | None) -> float:
        """Seconds since a time of an object; 0 for an absent one."""
        moment = parse(text)
        return (self.now - moment).total_seconds() if moment else 0.0

    def events_about(self, name: str, *reasons: str) -> Iterator[Object]:
        """Events on one object, all or those with these reasons, newest first."""
        for event in reversed(self.events):
            subject = event.get("involvedObject") or {}
            if subject.get("name") == name and (not reasons or event.get("reason") in reasons):
                yield event

    @property
    def last_words(self) -> str:
        """The last lines of the log of the replica that failed last, as its condition has them."""
        return str(self.condition("ReplicaFailure").get("message") or "").partition(": ")[2]

    def pod(self, name: str) -> Object | None:
        """The pod of this name, as long as it exists."""
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    def failed_container(self, pod_name: str) -> Object:
        """The status of the container that ended a pod; empty when the pod is gone or is well."""
        pod = self.pod(pod_name) or {}
        for status in statuses_of(pod):
            ended = (status.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                return status
        return {}

    def words_of(self, pod_name: str) -> str:
        """The last lines that a replica wrote before it failed."""
        state = self.failed_container(pod_name).get("state") or {}
        message = (state.get("terminated") or {}).get("message") or self.last_words
        return without_report(str(message))

    @property
    def attempts(self) -> Sequence[Object]:
        """The history, oldest first."""
        return self.status.get("attempts") or ()

    @property
    def last_failure(self) -> Object:
        """The newest attempt that a replica ended; empty when none did."""
        ended = [a for a in self.attempts if a.get("endTime") and a.get("replica")]
        return max(ended, key=lambda attempt: str(attempt["endTime"]), default={})


def statuses_of(pod: Object) -> list[Object]:
    """The statuses of all containers of a pod, init containers first."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def listed(items: Sequence[str], most: int = 4) -> str:
    """`worker-0, worker-1 and 6 more`."""
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"


def lines_of(text: str | None) -> tuple[str, ...]:
    """The lines of a message that are not empty; of a progress bar its last state."""
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in (text or "").split("\n"))
    return tuple(line for line in shown if line.strip())
