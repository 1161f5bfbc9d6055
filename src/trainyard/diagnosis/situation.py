"""The input of a diagnosis: a job with its pods, events and logs at one time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from trainyard.client.attempt_logs import last_attempt
from trainyard.client.job_view import Job
from trainyard.client.log_tails import Tail
from trainyard.client.pod_views import PodView
from trainyard.kinds.shared.reasons import (
    GIVEN_UP,
    ToldFailure,
    parse_failure_message,
    without_torchrun_report,
)
from trainyard.kube.embedded_contract import HIDDEN_OUTPUT
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

Object = Mapping[str, Any]
_OF_ITSELF = ("Error", "Completed", "StartError", "ContainerCannotRun", "RunContainerError")


@dataclass(frozen=True, slots=True)
class Cause:
    """What is the matter, how that shows, and what can be done."""

    what: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """A job, its pods and the events about both, as stored, the oldest event first."""

    job: Job
    pods: Sequence[PodView] = ()
    events: Sequence[Object] = ()
    now: datetime = field(kw_only=True)
    is_local: bool = True
    """On the embedded cluster, where the remedies are other commands."""
    logs: Mapping[str, Tail] = field(default_factory=dict)
    """The last lines of pods that have failed, or of a launch that waits, by pod name."""
    full_disk: str = ""
    """The state folder of the embedded cluster, if there is no room left in it."""

    def replica(self, pod: PodView | str) -> str:
        """`worker-0` of a pod or its name."""
        return self.job.replica_of(pod if isinstance(pod, str) else pod.name)

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
    def failure_output(self) -> str:
        """The last lines of the log of the replica that failed last, as its condition has them."""
        return self._told_failure.output

    @property
    def _told_failure(self) -> ToldFailure:
        return parse_failure_message(str(self.job.condition("ReplicaFailure").get("message") or ""))

    def pod(self, name: str) -> PodView | None:
        """The pod of this name, as long as it exists."""
        return next((pod for pod in self.pods if pod.name == name), None)

    def tail_of(self, pod_name: str) -> Tail | None:
        """The end of the log of a replica that has failed, of its last attempt; None if unread."""
        pod = self.pod(pod_name)
        has_failed = pod is None or self.job.failed_container(pod) is not None
        tail = self.logs.get(pod_name) if has_failed else None
        first = last_attempt(tail.lines) if tail else 0
        return tail and tail._replace(lines=tail.lines[first:], times=tail.times[first:])

    def _came_later(self, pod: PodView) -> bool:
        """Whether a pod is of an attempt after the last that its replica ended."""
        last = self.job.last_failure
        created = parse(pod.metadata.get("creationTimestamp"))
        ended = parse(last.get("endTime")) if last.get("replica") == pod.name else None
        return created is not None and ended is not None and created > ended

    def exit_reason(self, pod_name: str) -> str:
        """Why a pod's container was ended, where it did not end of itself: OOMKilled."""
        pod = self.pod(pod_name)
        failed = self.job.failed_container(pod) if pod else None
        return "" if failed is None or failed.reason in _OF_ITSELF else failed.reason

    def last_output(self, pod_name: str) -> str:
        """The last lines that a replica wrote before it failed, as its status has them."""
        pod = self.pod(pod_name)
        failed = self.job.failed_container(pod) if pod and not self._came_later(pod) else None
        told, last = self._told_failure, self.job.last_failure
        # It may be of an earlier attempt: what costs nothing is not told there.
        is_old = last.get("replica") == pod_name and told.code != last.get("exitCode")
        is_known = told.pod == pod_name and told.reason not in GIVEN_UP and not is_old
        reported = told.output if is_known else ""
        lines = ((failed and failed.termination_message) or reported).split("\n")
        return without_torchrun_report("\n".join(lines[last_attempt(lines) :]))


def limit_field(job: Job) -> str:
    """The field of the spec that limits restarts."""
    return "runPolicy.backoffLimit" if job.kind.has_shared_budget else "restartPolicy.limit"


def used_up(job: Job, replica: str) -> str:
    """Why a replica is not restarted any more that its policy would restart."""
    _, limit = job.restart_policy(replica)
    if not job.kind.has_shared_budget and not job.kind.launches_over_ssh:  # each has its own
        return f"its restarts are used up: {limit_field(job)} is {limit}"
    if job.restarts < limit:
        return f"its restarts do not suffice for all that failed: {job.restarts} of {limit} so far"
    return f"its restarts are used up: {job.restarts} of {limit}"


def listed(items: Sequence[str], most: int = 4) -> str:
    """`worker-0, worker-1 and 6 more`."""
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"


def lines_of(text: str | None) -> tuple[str, ...]:
    """The lines of a message that are not empty, or hidden; of a progress bar its last state."""
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in (text or "").split("\n"))
    return tuple(line for line in shown if line.strip() and line != HIDDEN_OUTPUT)
