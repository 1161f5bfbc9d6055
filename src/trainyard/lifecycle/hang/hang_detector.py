"""Whether a job hangs, and who is to blame: a rule over what its ranks tell of themselves.

Waiting for a rank that works is told and never acted on; a rank that says nothing may be stopped or
hold its interpreter's lock, and is a suspect. What is declared to hang waits for a rank that is
gone, stopped, idle or in a loop that changes nothing, or for each other. Measured on scripted hangs
and healthy slow runs (`tests/embedded/test_hang_soak.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum

from trainyard.lifecycle.hang.rank_reports import (
    BUSY,
    COLLECTING,
    IDLE,
    LEFT,
    LOOPING,
    MEETING,
    NEW,
    STOPPED,
    STUCK,
    WAITING,
    Collective,
    RankReport,
)
from trainyard.schema.dataclass import dataclass

SILENT_REPORTS, SILENT_SECONDS = 2, 5
"""A rank is silent once that many reports and seconds are overdue."""
SLEEPS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
"""What the kernel calls a timed sleep."""
_SERVER_WAITS = (
    "socket:",
    "ep_poll",
    "do_epoll_wait",
    "inet_csk_accept",
    "do_poll",
    "do_sys_poll",
    "do_select",
)
"""And the wait for somebody to connect, or to say something."""


class Finding(Enum):
    """What comes of a look at all ranks."""

    HUNG = "hung"
    MISMATCH = "mismatch"
    """It hangs, since ranks wait in collectives that are not each other's."""
    STOPPED = "stopped"
    """It hangs, since one is stopped by a signal."""
    SUSPECT = "suspect"
    BUSY = "busy"
    """Ranks wait for one that works."""
    SLEEPS = "sleeps"
    """All are in timed sleeps."""

    @property
    def is_hang(self) -> bool:
        """Whether it may be acted on."""
        return self in (Finding.HUNG, Finding.MISMATCH, Finding.STOPPED)


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """What was found, since when, and of whom: the culprit, None where there is none or it is not
    known, and those who wait for it."""

    finding: Finding
    since: datetime
    culprit: RankReport | None
    waiting: tuple[RankReport, ...] = ()
    is_gone: bool = False
    """Whether the culprit has ended."""
    unseen: tuple[int, ...] = ()
    """Ranks that have never reported, for which the others may wait."""


def detect_hang(
    ranks: Sequence[RankReport],
    now: datetime,
    *,
    gone: frozenset[str] = frozenset(),
    serves: bool = False,
) -> HangVerdict | None:
    """What the last reports of all ranks come to; None: nothing is wrong, or too little is known.

    `gone` are pods that have ended. `serves`: the job may answer requests, for which it waits.
    """
    present = sorted(ranks, key=lambda rank: rank.rank)
    ended = [rank for rank in present if rank.kind == LEFT or rank.pod in gone]
    live = [rank for rank in present if rank not in ended]
    stopped = [rank for rank in live if rank.kind == STOPPED]
    silent = [rank for rank in live if rank.kind != STOPPED and is_silent(rank, now)]
    if any(rank.kind in (NEW, COLLECTING) for rank in live if rank not in silent):
        return None
    waiting = [r for r in live if r.kind in (WAITING, MEETING) and r not in silent]
    others = [rank for rank in live if rank not in waiting and rank not in silent]
    awaited = {rank.pending.place for rank in waiting if rank.pending is not None}
    # Of a device's collectives one need not wait for those that it has begun.
    stuck = [rank for rank in others if rank.kind in STUCK]
    present_there = [r for r in stuck if r.pending is not None and r.pending.place in awaited]
    waiting += present_there
    others = [rank for rank in others if rank not in present_there]
    if serves and any(rank.waits_for.startswith(_SERVER_WAITS) for rank in others):
        return None
    known = {rank.rank for rank in present}
    unseen = tuple(number for number in range(world_size(present)) if number not in known)
    if not waiting:
        return _none_waits(others) if others and not silent and not unseen else None
    if ended:
        return _blame(Finding.HUNG, ended[0], waiting, is_gone=True)
    if stopped:
        return _blame(Finding.STOPPED, stopped[0], waiting)
    if silent:
        return _blame(Finding.SUSPECT, silent[0], waiting)
    if busy := [rank for rank in others if rank.kind == BUSY]:
        return _blame(Finding.BUSY, _latest(busy), waiting)
    if others:
        return _blame(Finding.HUNG, _latest(others), waiting)
    if unseen and any(rank.kind == WAITING for rank in waiting):
        since = max(rank.since for rank in waiting)
        return HangVerdict(Finding.SUSPECT, since, None, tuple(waiting), unseen=unseen)
    return _all_wait(waiting)


def world_size(ranks: Sequence[RankReport]) -> int:
    """How many ranks there should be, as the newest of them has it; not more than are worth it."""
    newest = max(ranks, key=lambda rank: rank.received_at, default=None)
    return min(newest.size, 2 * len(ranks) + 64) if newest is not None else 0


def is_silent(rank: RankReport, now: datetime) -> bool:
    """Whether its reports are overdue."""
    return now - rank.received_at > timedelta(seconds=SILENT_REPORTS * rank.every + SILENT_SECONDS)


def _blame(
    finding: Finding, culprit: RankReport, waiting: Sequence[RankReport], *, is_gone: bool = False
) -> HangVerdict:
    # Of one that says nothing it is known when it last did.
    theirs = culprit.received_at if is_gone or finding is Finding.SUSPECT else culprit.since
    since = max(theirs, *(rank.since for rank in waiting))
    return HangVerdict(finding, since, culprit, tuple(waiting), is_gone)


def _latest(ranks: Sequence[RankReport]) -> RankReport:
    """The one that has begun the fewest collectives, of ranks that have the same groups."""
    if len({tuple(rank.counts) for rank in ranks}) > 1:
        return ranks[0]
    return min(ranks, key=lambda rank: rank.begun)


def _none_waits(others: Sequence[RankReport]) -> HangVerdict | None:
    if any(rank.kind not in (IDLE, LOOPING) for rank in others):
        return None
    sleep = all(rank.kind == IDLE and rank.waits_for in SLEEPS for rank in others)
    since = max(rank.since for rank in others)
    return HangVerdict(Finding.SLEEPS if sleep else Finding.HUNG, since, None, tuple(others))


def _all_wait(waiting: Sequence[RankReport]) -> HangVerdict:
    since = max(rank.since for rank in waiting)
    meeting = [rank for rank in waiting if rank.kind == MEETING]
    if meeting and len(meeting) < len(waiting):
        rest = [rank for rank in waiting if rank not in meeting]
        return _blame(Finding.HUNG, meeting[0], rest)
    odd = None if meeting else mismatching_rank(waiting)
    if odd is None and (late := _unstarted_rank(waiting)) is not None:
        return _blame(Finding.BUSY, late, [rank for rank in waiting if rank is not late])
    finding = Finding.HUNG if odd is None else Finding.MISMATCH
    rest = [rank for rank in waiting if rank is not odd]
    return HangVerdict(finding, since, odd, tuple(rest))


def mismatching_rank(ranks: Sequence[RankReport]) -> RankReport | None:
    """The rank whose collectives do not match those of most others (of the first, if there is no
    majority); None where they do, or nothing is recorded."""
    pending = [rank for rank in ranks if rank.pending is not None]
    by_place: dict[tuple[str, int], list[tuple[RankReport, Collective]]] = {}
    for rank in pending:
        for each in rank.ring:
            if not each.is_p2p:
                by_place.setdefault(each.place, []).append((rank, each))
    for place in sorted(by_place):
        entries = by_place[place]
        for by_rank in ({r.rank: e.operation for r, e in entries}, _pending_sizes(entries)):
            if (number := _first_deviating(by_rank)) is not None:
                return next(rank for rank, _ in entries if rank.rank == number)
    # Where a device carries them out, a rank that waits may be in any of its groups.
    at = {
        r.rank: f"{r.pending.group} {r.pending}"
        for r in pending
        if r.pending is not None and not (r.pending.is_p2p or r.pending.is_of_device)
    }
    number = _first_deviating(at)
    return next((rank for rank in pending if rank.rank == number), None)


def _unstarted_rank(ranks: Sequence[RankReport]) -> RankReport | None:
    """The only one whose device has not come to its collective yet, where others' have."""
    late = [rank for rank in ranks if rank.pending is not None and not rank.pending.started]
    return late[0] if len(late) == 1 < len(ranks) else None


def _pending_sizes(entries: Sequence[tuple[RankReport, Collective]]) -> dict[int, str]:
    """Only where the collective did not end: others may well take what is not alike."""
    return {rank.rank: entry.sizes for rank, entry in entries if not entry.done}


def _first_deviating(by_rank: dict[int, str]) -> int | None:
    """The first rank that does not say what most do."""
    if len(set(by_rank.values())) < 2:
        return None
    [(most, _)] = Counter(dict(sorted(Counter(by_rank.values()).items()))).most_common(1)
    counts = Counter(by_rank.values())
    if len(set(counts.values())) == 1:  # no majority: the first is as good as any
        most = by_rank[min(by_rank)]
    return next(number for number, value in sorted(by_rank.items()) if value != most)
