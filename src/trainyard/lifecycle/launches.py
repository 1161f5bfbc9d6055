"""A launch over ssh that does not start: what is told of it, and when it has taken too long.

The container that launches says by its startup probe whether the training has begun, and what it
waits for until then (decision 100). The clock starts when all replicas run, as none can be waited
for before, and not when the launching one does (decision 101).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.kinds.shared.reasons import preflight_words
from trainyard.lifecycle import elastic, texts
from trainyard.lifecycle.observed import Container
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.passes import Pass
from trainyard.lifecycle.replicas import Replica
from trainyard.lifecycle.report import Report
from trainyard.schema.dataclass import dataclass

NOTICE = timedelta(seconds=15)
"""Waiting for as long is worth a word; by then the probe has told what for."""
LOOK_AGAIN = timedelta(seconds=15)
"""How often the words are asked for."""
TIMEOUT = "LaunchTimeout"
"""Why a launching replica failed that has taken too long."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch under way: by which replica, since when, what it waits for, until when it may."""

    replica: Replica
    since: datetime
    due: datetime
    words: str


def has_started(job: Pass) -> bool:
    """Whether the launching container says so."""
    replica = _launching(job)
    return replica is not None and _has_started(job, replica) is True


def differences(job: Pass) -> str:
    """In what the hosts of a launch that has started differ; "" if nothing is known."""
    replica = _launching(job)
    return preflight_words(_words(job, replica)) if replica is not None else ""


def under_way(job: Pass) -> Launch | None:
    """The launch that all replicas wait for; None when it has started, or cannot start yet."""
    replica = _launching(job)
    if replica is None or _has_started(job, replica) is not False:
        return None
    if not elastic.is_up(job.workload, job.view):
        return None
    assert job.workload.launch_timeout_seconds is not None
    running = (_main(r) for r in job.view.replicas if r.state is State.RUNNING)
    since = max((each.since for each in running if each and each.since), default=job.now)
    due = since + timedelta(seconds=job.workload.launch_timeout_seconds)
    return Launch(replica, since, due, _words(job, replica))


def give_up(job: Pass) -> Pass:
    """The same with a launch that has taken too long as a failure of the launching replica."""
    launch = under_way(job)
    if launch is None or job.now < launch.due:
        return job
    message = texts.launch_overdue(job.workload, launch.words)
    # Without a time: any other failure goes before it, and nothing is waited for (decision 54).
    end = Exit(reason=TIMEOUT, message=message)
    failed = launch.replica._replace(state=State.FAILED, exit=end)
    replicas = [failed if r.key == failed.key else r for r in job.view.replicas]
    not_running = [r for r in replicas if r.state is not State.RUNNING]
    return replace(job, view=job.view._replace(replicas=replicas, not_running=not_running))


def tell(job: Pass, report: Report) -> datetime | None:
    """Tell of it in the status; when there may be more to tell."""
    launch = under_way(job)
    if launch is not None:
        if is_slow(job, launch):
            report.not_launched(launch.words)
        return look_at(job, launch)
    if has_started(job):
        report.launched(differences(job))
    else:
        report.not_launched(None)
    return None


def look_at(job: Pass, launch: Launch) -> datetime:
    """When there may be more to tell of it."""
    worth_a_word = launch.since + NOTICE
    later = worth_a_word if job.now < worth_a_word else job.now + LOOK_AGAIN
    return min(launch.due, later)


def is_slow(job: Pass, launch: Launch) -> bool:
    """Whether it is worth a word."""
    return job.now >= launch.since + NOTICE


def _launching(job: Pass) -> Replica | None:
    if job.workload.launch_timeout_seconds is None:
        return None
    for replica in job.view.replicas:
        if replica.key == job.workload.decides:
            return replica if replica.state is State.RUNNING else None
    return None


def _main(replica: Replica) -> Container | None:
    name = replica.type.main_container
    return replica.pod.container(name) if replica.pod is not None and name is not None else None


def _words(job: Pass, replica: Replica) -> str:
    return job.observed.words.get(replica.pod.uid, "") if replica.pod is not None else ""


def _has_started(job: Pass, replica: Replica) -> bool | None:
    """None: it does not say."""
    main = _main(replica)
    if main is not None and main.started is False and preflight_words(_words(job, replica)):
        return True  # its probe fails once more, to tell that
    return main.started if main is not None else None
