"""Explains why a job is not where its user wants it, from objects of the API.

Pure: no I/O, no clock. Each rule looks for one kind of cause; the table below has them by gravity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainyard.client.job_events import event_time
from trainyard.diagnosis import (
    ending_story,
    finished_jobs,
    hang_diagnosis,
    job_blockers,
    launch_diagnosis,
    node_check_diagnosis,
    pod_blockers,
    replica_failures,
    straggler_diagnosis,
)
from trainyard.diagnosis.situation import Cause, Situation
from trainyard.kinds.shared.reasons import Phase, launch_wait_message
from trainyard.kinds.shared.workload import LAUNCHED_PATH
from trainyard.schema.times import duration

__all__ = ["Cause", "Situation", "causes", "headline", "warnings"]

_Rule = Callable[[Situation], Iterable[Cause]]

_RULES: tuple[_Rule, ...] = (
    job_blockers.disk_is_full,
    job_blockers.being_deleted,
    finished_jobs.succeeded,
    finished_jobs.failed,
    # From here on the job has not ended.
    job_blockers.paused,
    job_blockers.not_seen,
    job_blockers.reported_by_controller,
    job_blockers.restarting,
    pod_blockers.lost,
    pod_blockers.stuck_terminating,
    pod_blockers.unschedulable,
    pod_blockers.not_starting,
    job_blockers.resuming,
    job_blockers.in_debug,
    pod_blockers.waiting_for_peers,
    launch_diagnosis.not_launched,
    launch_diagnosis.differing_hosts,
    node_check_diagnosis.in_progress,
    hang_diagnosis.hanging,
    node_check_diagnosis.bad_nodes,
    straggler_diagnosis.late_ranks,
    job_blockers.degraded,
    pod_blockers.half_ended,
    pod_blockers.unready,
    pod_blockers.starting,
)
"""Gravest first: what a later rule finds may be a consequence of an earlier one."""
_CONCLUSIVE = frozenset(
    {job_blockers.being_deleted, finished_jobs.succeeded, finished_jobs.failed, job_blockers.paused}
)
"""Rules that leave nothing to add once they apply."""

_FALLBACKS = frozenset({job_blockers.resuming, pod_blockers.starting})
"""Rules that say no more than the phase; for want of something better."""

_EXPLAINED_REASONS = frozenset(
    {
        *("FailedScheduling", "Restart", "ReplicaFailure", "Failed", "BackOff"),
        *("LaunchWaits", "Hung", "Straggler"),
        node_check_diagnosis.EVENT_REASON,
    }
)
"""Reasons of warnings that the causes already explain in other words."""


def causes(situation: Situation) -> list[Cause]:
    """Every cause that applies, the gravest first; none for a job that simply runs."""
    found: list[Cause] = []
    for rule in _RULES:
        if rule in _FALLBACKS and found:
            continue
        more = list(rule(situation))
        found += more
        if more and rule in _CONCLUSIVE:
            return [*found, *ending_story.asked_to_end(situation)]
    return found


def headline(situation: Situation, found: list[Cause]) -> str:
    """One sentence on where the job stands."""
    state = "being deleted" if situation.job.is_deleting else situation.job.phase
    if found:
        return f"{situation.job} is {state}: {found[0].what}"
    counts = situation.job.aggregate
    running = (
        f" {counts.get('running', 0)} of {sum(counts.values())} replicas run." if counts else ""
    )
    text = f"{situation.job} is {state}, and nothing is wrong with it that can be seen.{running}"
    return text + _last_attempt(situation)


def _last_attempt(situation: Situation) -> str:
    """What the last attempt ended with; a job that runs again may still be asked why."""
    if not (failure := situation.job.last_failure):
        return ""
    death = replica_failures.failure_of_attempt(situation, failure)
    age = duration(situation.ago(failure.get("endTime")))
    return (
        f"\n    attempt {failure.get('number', '?')} was ended by {death.who} ({death.ending}) "
        f"{age} ago" + (f"; {death.ruling}" if death.ruling else "")
    )


def warnings(situation: Situation, found: Sequence[Cause] = ()) -> list[str]:
    """What else the cluster warned of, each once with its age, newest last."""
    known = "\n".join("\n".join((cause.what, *cause.evidence)) for cause in found)
    advice = [text for cause in found for text in cause.advice]
    newest: dict[str, Mapping[str, Any]] = {}
    for event in situation.events:
        message = (event.get("message") or "").strip()
        if (
            event.get("type") != "Warning"
            or event.get("reason") in _EXPLAINED_REASONS
            or message in known
            or any(text in message for text in advice)
        ):
            continue
        if event.get("reason") == "Unhealthy" and _is_probe_passing(situation, event):
            continue
        if message.startswith("Startup probe failed"):  # as it does until the start is over
            continue
        if launch_wait_message(message) or LAUNCHED_PATH in message:  # told by `launch_diagnosis`
            continue
        text = f"{event.get('reason')}: {message}"
        newest.pop(text, None)
        newest[text] = event
    return [
        f"{text} ({duration((situation.now - event_time(event)).total_seconds())} ago)"
        for text, event in newest.items()
    ]


def _is_probe_passing(situation: Situation, event: Mapping[str, Any]) -> bool:
    """Whether the probe that an event tells of succeeds by now, or no longer matters."""
    pod = situation.pod(str((event.get("involvedObject") or {}).get("name")))
    if pod is None or situation.job.phase == Phase.SUCCEEDED:
        return True
    containers = pod.main_containers
    return bool(containers) and all(each.obj.get("ready") for each in containers)
