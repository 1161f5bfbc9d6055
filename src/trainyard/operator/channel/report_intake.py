"""Where what pods have said of their jobs arrives, and is kept for the next pass.

What lasts is in the job's status: this is of the one controller that heard it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from trainyard.lifecycle.hang.rank_reports import ALONE, STUCK, RankReport
from trainyard.lifecycle.node_check.node_check_results import NodeCheckReport
from trainyard.lifecycle.pod_reports import NO_REPORTS, CollectiveCounts, InPlaceReport, PodReports
from trainyard.lifecycle.straggler.straggler_detector import detect_stragglers
from trainyard.operator.channel.trainer_status import BadReport, progress
from trainyard.operator.runtime_context import Clock
from trainyard.schema.dataclass import dataclass

TRAINER_STATUS, OBSERVATION = "trainerStatus", "observation"
HOLD, NODE_CHECK = "hold", "nodeCheck"
_MOST_RANKS = 20_000
_OF_POD, _OF_JOB = 10.0, 200.0
"""Reports a second; after a pause, twice as many at once."""
_ALL = ""
_LATEST_SKEWS = 64
"""Reports by which the clock of a machine is known: the one that took the least time tells most."""
_RATE_SECONDS, _RATE_REPORTS = 60.0, 64
"""The rate is that of the last minute, or of the last two reports."""


@dataclass(slots=True)
class _Of:
    """What is known of one job."""

    heard: PodReports = NO_REPORTS
    ranks: dict[int, RankReport] = field(default_factory=dict)
    """Without their arrivals, of which passes see what they come to."""
    arrived: dict[int, RankReport] = field(default_factory=dict)
    skews: dict[str, deque[float]] = field(default_factory=dict)
    """By machine: how many seconds later, by our clock, than by its own, its reports came."""
    judged: float = float("-inf")
    """When it was last looked which ranks are late."""
    steps: deque[tuple[float, int]] = field(default_factory=deque)
    """When which step was told, by the loop's clock."""
    begun: deque[tuple[float, int]] = field(default_factory=deque)
    """When how many collectives had been begun by rank 0."""
    pace: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By pod, and of all: how many reports may come in as of when."""
    woken: float = float("-inf")
    waking: asyncio.TimerHandle | None = None


class ReportIntake:
    """What was heard, by the UID of the job. `wake` is called with it when there is news, at most
    once in `every` seconds."""

    def __init__(self, now: Clock, wake: Callable[[str], None], every: float) -> None:
        self._now, self._wake, self._every = now, wake, every
        self._jobs: dict[str, _Of] = {}
        self._loop = asyncio.get_running_loop()

    def reports_of(self, uid: str) -> PodReports:
        """Everything that was heard of a job."""
        known = self._jobs.get(uid)
        return NO_REPORTS if known is None else known.heard

    def allows(self, uid: str, pod: str) -> bool:
        """Whether another report of the pod may come in now, which is then counted."""
        pace, now = self._jobs.setdefault(uid, _Of()).pace, self._loop.time()
        own = _fill(pace.get(pod), _OF_POD, now)
        shared = _fill(pace.get(_ALL), _OF_JOB, now)
        allowed = own >= 1 and shared >= 1
        pace[pod], pace[_ALL] = (own - allowed, now), (shared - allowed, now)
        return allowed

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take in what a pod sends; what to answer. Raises BadReport."""
        if OBSERVATION in body:
            self._observe(uid, body[OBSERVATION], pod)
            return {}
        if HOLD in body:
            self._hold(uid, body[HOLD], pod)
            return {}
        if NODE_CHECK in body:
            self._check(uid, body[NODE_CHECK], pod)
            return {}
        if TRAINER_STATUS not in body:
            raise BadReport(f"{TRAINER_STATUS}: missing")
        told = progress(body[TRAINER_STATUS], pod, self._now())
        job = self._jobs.setdefault(uid, _Of())
        before = job.heard.progress
        known = told.after(before)
        if known is before:  # the program itself has told more
            return body
        if before is not None and known.source != before.source:
            job.steps.clear()
        told = replace(told, rate=None if told.step is None else self._rate(job.steps, told.step))
        job.heard = replace(job.heard, progress=told.after(before))
        self._tell(uid, job)
        return body

    def _observe(self, uid: str, told: Any, pod: str) -> None:
        """What a rank does, which changes nothing while it gets on."""
        try:
            rank = RankReport.decode(told, pod, self._now())
        except ValueError as error:
            raise BadReport(str(error)) from error
        job = self._jobs.setdefault(uid, _Of())
        before = job.ranks.get(rank.rank)
        if before is None and len(job.ranks) >= _MOST_RANKS:
            raise BadReport(f"observation.rank: there are {_MOST_RANKS} already")
        if rank.kind == ALONE and _has_met(job, rank.attempt):
            return  # what starts ranks, or what ran before them
        job.ranks[rank.rank] = replace(rank, arrivals={})
        job.heard = replace(job.heard, ranks=tuple(job.ranks.values()))
        if self._compare(job, rank):
            self._wake(uid)  # at once: thirty quick steps take no more than some seconds
        is_news = rank.rank == 0 and self._count(job, rank, before)
        if is_news or rank.kind in STUCK or before is None or before.kind != rank.kind:
            self._tell(uid, job)

    def _hold(self, uid: str, told: Any, pod: str) -> None:
        """How an attempt is in a pod that is held; its end is decided upon at once."""
        try:
            hold = InPlaceReport.decode(told, self._now())
        except ValueError as error:
            raise BadReport(str(error)) from error
        job = self._jobs.setdefault(uid, _Of())
        before = job.heard.holds.get(pod)
        is_news = before is None or before.state != hold.state
        if before is not None and not is_news:
            hold = replace(hold, at=before.at, since=before.since)  # later reports only repeat it
        job.heard = replace(job.heard, holds={**job.heard.holds, pod: hold})
        if is_news:
            self._wake(uid)

    def _check(self, uid: str, told: Any, pod: str) -> None:
        """How the test of a node stands."""
        try:
            found = NodeCheckReport.decode(told, self._now())
        except ValueError as error:
            raise BadReport(str(error)) from error
        job = self._jobs.setdefault(uid, _Of())
        before = job.heard.checks.get(pod)
        if before is None or before.state != found.state:
            job.heard = replace(job.heard, checks={**job.heard.checks, pod: found})
            self._wake(uid)

    def _compare(self, job: _Of, rank: RankReport) -> bool:
        """Look which ranks are late, now and then; whether there are others than before."""
        job.arrived[rank.rank] = rank
        if not rank.arrivals:
            return False
        skews = job.skews.setdefault(rank.machine, deque(maxlen=_LATEST_SKEWS))
        skews.append(self._now().timestamp() - rank.now)
        now = self._loop.time()
        if now - job.judged < self._every:
            return False
        job.judged, before = now, job.heard.late
        least = {machine: min(each) for machine, each in job.skews.items()}
        late = detect_stragglers(job.arrived.values(), least, before)
        if late is None:
            return False
        job.heard = replace(job.heard, late=late)
        return {each.rank for each in late} != {each.rank for each in before or ()}

    def forget(self, uid: str) -> None:
        """The job is gone."""
        known = self._jobs.pop(uid, None)
        if known is not None and known.waking is not None:
            known.waking.cancel()

    def _count(self, job: _Of, rank: RankReport, before: RankReport | None) -> bool:
        """Take in how many collectives there were; whether that is news, for a job of which
        nothing better is known."""
        if before is not None and (before.pod, before.pid) != (rank.pod, rank.pid):
            job.begun.clear()
        rate = self._rate(job.begun, rank.begun)
        if rate is None and len(job.begun) > 1:
            rate = 0.0
        told, known = job.heard.progress, job.heard.collectives
        is_same = known is not None and (known.count, known.rate) == (rank.begun, rate)
        if not rank.begun or is_same or (told is not None and told.says_where):
            return False
        found = CollectiveCounts(rank.heard, rank.pod, rank.begun, rate, rank.cadence)
        job.heard = replace(job.heard, collectives=found)
        return True

    def _rate(self, counts: deque[tuple[float, int]], count: int) -> float | None:
        now = self._loop.time()
        if counts and count < counts[-1][1]:  # it began again, from a checkpoint
            counts.clear()
        counts.append((now, count))
        while len(counts) > 2 and (
            now - counts[1][0] > _RATE_SECONDS or len(counts) > _RATE_REPORTS
        ):
            counts.popleft()
        began, first = counts[0]
        return (count - first) / (now - began) if now > began and count > first else None

    def _tell(self, uid: str, job: _Of) -> None:
        if job.waking is None:
            wait = job.woken + self._every - self._loop.time()
            job.waking = self._loop.call_later(max(0.0, wait), self._news, uid, job)

    def _news(self, uid: str, job: _Of) -> None:
        job.waking, job.woken = None, self._loop.time()
        self._wake(uid)


def _has_met(job: _Of, attempt: int) -> bool:
    """Whether ranks of an attempt have had a process group."""
    return any(each.kind != ALONE and each.attempt == attempt for each in job.ranks.values())


def _fill(bucket: tuple[float, float] | None, rate: float, now: float) -> float:
    level, at = bucket or (2 * rate, now)
    return min(2 * rate, level + (now - at) * rate)
