"""Keeps what pods have reported of their jobs, for the next reconcile.

Only in the memory of the leader that received it: what must last goes into the job's status.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from trainyard.lifecycle.hang.rank_reports import LEFT, MEETING, NEVER_MET, STUCK, RankReport
from trainyard.lifecycle.pod_reports import NO_REPORTS, CollectiveCounts, PodReports
from trainyard.lifecycle.policies import POD_REPORTS
from trainyard.lifecycle.policy import PodReport
from trainyard.lifecycle.straggler.straggler_detector import detect_stragglers
from trainyard.operator.channel.trainer_status import BadReport, parse_trainer_status
from trainyard.operator.runtime_context import Clock
from trainyard.schema.dataclass import dataclass

TRAINER_STATUS, OBSERVATION = "trainerStatus", "observation"
_MOST_RANKS = 20_000
_POD_RATE, _JOB_RATE = 10.0, 200.0
"""Reports a second; after a pause, a burst of twice as many."""
_ALL = ""
_LATEST_SKEWS = 64
"""Reports from which the skew of a machine's clock is estimated: the smallest delay counts."""
_RATE_SECONDS, _RATE_REPORTS = 60.0, 64
"""The rate is that of the last minute, or of the last two reports."""


def pod_report_in(body: Mapping[str, Any]) -> PodReport | None:
    """Which report of a pod's state a message is, if any."""
    return next((each for each in POD_REPORTS if each.name in body), None)


@dataclass(slots=True)
class _JobReports:
    """What was reported of one job."""

    reports: PodReports = NO_REPORTS
    ranks: dict[int, RankReport] = field(default_factory=dict)
    """Without arrival times, of which reconciles see only the stragglers they result in."""
    displaced: dict[tuple[int, str], int] = field(default_factory=dict)
    """By rank and pod: the process that was this rank before another pod reported it."""
    ranks_with_arrivals: dict[int, RankReport] = field(default_factory=dict)
    skews: dict[str, deque[float]] = field(default_factory=dict)
    """By machine: seconds between a report's own time and its receipt by our clock."""
    compared_at: float = float("-inf")
    """When stragglers were last looked for, by the loop's clock."""
    steps: deque[tuple[float, int]] = field(default_factory=deque)
    """Times, by the loop's clock, and steps reported then."""
    collectives: deque[tuple[float, int]] = field(default_factory=deque)
    """Times, and how many collectives rank 0 had started by then."""
    allowances: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By pod, and "" for the job: how many reports are allowed, as of a time."""
    woken_at: float = float("-inf")
    wakeup: asyncio.TimerHandle | None = None


class ReportIntake:
    """Reports by the UID of the job. `wake` is called with a UID when there is something new, at
    most once in `every` seconds."""

    def __init__(self, now: Clock, wake: Callable[[str], None], every: float) -> None:
        self._now, self._wake, self._every = now, wake, every
        self._jobs: dict[str, _JobReports] = {}
        self._loop = asyncio.get_running_loop()

    def reports_of(self, uid: str) -> PodReports:
        """Everything that was reported of a job."""
        known = self._jobs.get(uid)
        return NO_REPORTS if known is None else known.reports

    def allows(self, uid: str, pod: str) -> bool:
        """Whether the rate limits of pod and job allow another report, which is then counted."""
        allowances, now = self._jobs.setdefault(uid, _JobReports()).allowances, self._loop.time()
        own = _refill(allowances.get(pod), _POD_RATE, now)
        shared = _refill(allowances.get(_ALL), _JOB_RATE, now)
        allowed = own >= 1 and shared >= 1
        allowances[pod], allowances[_ALL] = (own - allowed, now), (shared - allowed, now)
        return allowed

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in a report; returns the answer's body. Raises BadReport."""
        if OBSERVATION in body:
            self._take_observation(uid, body[OBSERVATION], pod)
            return {}
        if (report := pod_report_in(body)) is not None:
            self._take_pod_state(uid, report, body[report.name], pod)
            return {}
        if TRAINER_STATUS not in body:
            raise BadReport(f"{TRAINER_STATUS}: missing")
        progress = parse_trainer_status(body[TRAINER_STATUS], pod, self._now())
        job = self._jobs.setdefault(uid, _JobReports())
        before = job.reports.progress
        merged = progress.after(before)
        if merged is before:  # the program itself has reported more
            return body
        if before is not None and merged.source != before.source:
            job.steps.clear()
        rate = None if progress.step is None else self._rate(job.steps, progress.step)
        progress = replace(progress, rate=rate)
        job.reports = replace(job.reports, progress=progress.after(before))
        self._schedule_wakeup(uid, job)
        return body

    def _take_observation(self, uid: str, body: Any, pod: str) -> None:
        """What a rank does; that wakes the controller only where it may change something."""
        try:
            rank = RankReport.decode(body, pod, self._now())
        except ValueError as error:
            raise BadReport(str(error)) from error
        job = self._jobs.setdefault(uid, _JobReports())
        before = job.ranks.get(rank.rank)
        if before is None and len(job.ranks) >= _MOST_RANKS:
            raise BadReport(f"observation.rank: there are {_MOST_RANKS} already")
        if rank.kind in NEVER_MET and _has_process_group(job, rank.attempt):
            return  # a launcher, or a program that ran before the ranks
        self._note_double(job, rank, before)
        job.ranks[rank.rank] = replace(rank, arrivals={})
        job.reports = replace(job.reports, ranks=tuple(job.ranks.values()))
        if self._find_stragglers(job, rank):
            self._wake(uid)  # at once, since thirty quick steps take only seconds
        is_news = rank.rank == 0 and self._count_collectives(job, rank, before)
        if is_news or rank.kind in STUCK or before is None or before.kind != rank.kind:
            self._schedule_wakeup(uid, job)

    def _note_double(self, job: _JobReports, rank: RankReport, before: RankReport | None) -> None:
        """Note it where one that another pod had followed as this rank still reports. A rank that a
        launcher moves to another pod is another process there, should it come back."""
        if before is None or before.pod == rank.pod or rank.kind in (LEFT, MEETING, *NEVER_MET):
            return
        job.displaced[rank.rank, before.pod] = before.pid
        if job.displaced.get((rank.rank, rank.pod)) == rank.pid:
            job.reports = replace(job.reports, doubles=(before, rank))

    def _take_pod_state(self, uid: str, report: PodReport, body: Any, pod: str) -> None:
        """How something stands in a pod; a change wakes the controller."""
        try:
            found = report.decode(body, self._now())
        except ValueError as error:
            raise BadReport(str(error)) from error
        job = self._jobs.setdefault(uid, _JobReports())
        known = getattr(job.reports, report.field)
        before = known.get(pod)
        is_news = before is None or before.state != found.state
        kept = found if is_news else found.repeating(before)
        changes: dict[str, Any] = {report.field: {**known, pod: kept}}
        job.reports = replace(job.reports, **changes)
        if is_news:
            self._wake(uid)

    def _find_stragglers(self, job: _JobReports, rank: RankReport) -> bool:
        """Look for stragglers, at most once an interval; whether they are others than before."""
        job.ranks_with_arrivals[rank.rank] = rank
        if not rank.arrivals:
            return False
        skews = job.skews.setdefault(rank.machine, deque(maxlen=_LATEST_SKEWS))
        skews.append(self._now().timestamp() - rank.now)
        now = self._loop.time()
        if now - job.compared_at < self._every:
            return False
        job.compared_at, before = now, job.reports.stragglers
        least = {machine: min(each) for machine, each in job.skews.items()}
        late = detect_stragglers(job.ranks_with_arrivals.values(), least, before)
        if late is None:
            return False
        job.reports = replace(job.reports, stragglers=late)
        return {each.rank for each in late} != {each.rank for each in before or ()}

    def forget(self, uid: str) -> None:
        """The job is gone."""
        known = self._jobs.pop(uid, None)
        if known is not None and known.wakeup is not None:
            known.wakeup.cancel()

    def _count_collectives(
        self, job: _JobReports, rank: RankReport, before: RankReport | None
    ) -> bool:
        """Note how many collectives there were; whether that is new, for a job that reports no
        progress of its own."""
        if before is not None and (before.pod, before.pid) != (rank.pod, rank.pid):
            job.collectives.clear()
        rate = self._rate(job.collectives, rank.begun)
        if rate is None and len(job.collectives) > 1:
            rate = 0.0
        progress, known = job.reports.progress, job.reports.collectives
        is_same = known is not None and (known.count, known.rate) == (rank.begun, rate)
        if not rank.begun or is_same or (progress is not None and progress.has_position):
            return False
        found = CollectiveCounts(rank.received_at, rank.pod, rank.begun, rate, rank.cadence)
        job.reports = replace(job.reports, collectives=found)
        return True

    def _rate(self, counts: deque[tuple[float, int]], count: int) -> float | None:
        now = self._loop.time()
        if counts and count < counts[-1][1]:  # it went back to a checkpoint
            counts.clear()
        counts.append((now, count))
        while len(counts) > 2 and (
            now - counts[1][0] > _RATE_SECONDS or len(counts) > _RATE_REPORTS
        ):
            counts.popleft()
        began, first = counts[0]
        return (count - first) / (now - began) if now > began and count > first else None

    def _schedule_wakeup(self, uid: str, job: _JobReports) -> None:
        if job.wakeup is None:
            wait = job.woken_at + self._every - self._loop.time()
            job.wakeup = self._loop.call_later(max(0.0, wait), self._wake_now, uid, job)

    def _wake_now(self, uid: str, job: _JobReports) -> None:
        job.wakeup, job.woken_at = None, self._loop.time()
        self._wake(uid)


def _has_process_group(job: _JobReports, attempt: int) -> bool:
    """Whether ranks of an attempt have formed a process group."""
    return any(r.kind not in NEVER_MET and r.attempt == attempt for r in job.ranks.values())


def _refill(bucket: tuple[float, float] | None, rate: float, now: float) -> float:
    level, at = bucket or (2 * rate, now)
    return min(2 * rate, level + (now - at) * rate)
