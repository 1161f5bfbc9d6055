"""A job that hangs, or seems to, in words."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.lifecycle.hangs import SLEEPS, Finding, Verdict
from trainyard.lifecycle.ranks import IDLE, LOOPING, MEETING, WAITING, Collective, Frame, Rank

GOES_ON = "The ranks get on, as far as they are observed."
_AWAITED = {
    "pipe": " for a pipe",
    "socket": " for a socket",
    "wait_for_partner": " for the other end of a FIFO",
    "futex": " for a lock",
    "do_wait": " for a child process",
    "inet_csk_accept": " for a connection",
    "do_sigtimedwait": " for a signal",
    "locks_lock": " for a lock of a file",
    "flock": " for a lock of a file",
}
"""By what the kernel calls it, or what its descriptor is."""
_NAMED, _GROUP_NAME = 8, 12
_MOST_STACKS = 262_144
"""Characters; a ConfigMap has room for a MiB."""


def tell(verdict: Verdict) -> str:
    """`worker-1 (rank 1) has not entered all_reduce #6; it sleeps in wait_for_peer, train.py:5;
    ranks 0, 2, 3 wait in train.py:12`; an event has room for 1,024 characters."""
    culprit, waiting = verdict.culprit, verdict.waiting
    if culprit is None:
        return _nobody(verdict)
    who, missing = name(culprit), _missing(waiting)
    behind = f"; {_waiters(waiting)}"
    if verdict.is_gone:
        lacks = f", and has not entered {missing}" if missing else ""
        return f"{who} has ended{lacks}{behind}"
    if verdict.finding is Finding.STOPPED:
        lacks = f", and has not entered {missing}" if missing else ""
        seen = f"; it was last seen in {culprit.line}" if culprit.line is not None else ""
        return f"{who} is stopped by a signal{lacks}{seen}{behind}"
    if verdict.finding is Finding.SUSPECT:
        return f"{who} says nothing any more: it is stopped, or holds its interpreter lock{behind}"
    if verdict.finding is Finding.BUSY:
        return f"{_ranks(waiting)} {_verb(waiting, 'wait')} for {who}, which is busy{_at(culprit)}"
    if verdict.finding is Finding.MISMATCH:
        own, theirs = culprit.pending, waiting[0].pending
        apart = own is not None and theirs is not None and own.group != theirs.group
        return (
            f"the collectives do not match: {who} is in {_in(own, apart=apart)}{_at(culprit)}; "
            f"{_ranks(waiting)} {'is' if len(waiting) == 1 else 'are'} in "
            f"{_in(theirs, apart=apart)}{_at(waiting[0])}"
        )
    if missing and not _has_entered(culprit, waiting):
        return f"{who} has not entered {missing}; it {_does(culprit)}{behind}"
    return f"{who} {_does(culprit)}{behind}"


def name(rank: Rank) -> str:
    """`worker-1 (rank 1)`."""
    return f"{rank.pod} (rank {rank.rank})"


def sentence(text: str) -> str:
    """As an event, which has room for 1,024 characters."""
    return f"{text[:1000]}."


def stacks(ranks: Sequence[Rank]) -> str:
    """The stacks of all ranks, equal ones told once and the odd ones first, innermost frame first,
    and their last collectives."""
    groups: dict[tuple[str, tuple[Frame, ...]], list[Rank]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.rank):
        groups.setdefault((rank.kind, rank.frames), []).append(rank)
    parts = []
    for (kind, frames), alike in sorted(groups.items(), key=_oddness):
        names = ", ".join(name(rank) for rank in alike)
        lines = [
            f"{names}: {kind.lower()}",
            *(f"    {f.function} ({f.file}:{f.line})" for f in frames),
        ]
        for rank in alike:
            if rank.ring:
                entries = ", ".join(f"{e}{'' if e.done else ' (not done)'}" for e in rank.ring)
                lines.append(f"    collectives of rank {rank.rank}: {entries}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)[:_MOST_STACKS]


def _oddness(group: tuple[tuple[str, tuple[Frame, ...]], list[Rank]]) -> tuple[int, bool]:
    """Few are odd, and of as many those that do not wait for others."""
    (kind, _), alike = group
    return len(alike), kind in (WAITING, MEETING)


def _nobody(verdict: Verdict) -> str:
    ranks = verdict.waiting
    first = ranks[0]
    everyone = "the only rank" if len(ranks) == 1 else f"all {len(ranks)} ranks"
    if verdict.unseen:
        numbers = _numbers(verdict.unseen)
        missing = _missing(ranks)
        what = f" in {missing}" if missing else ""
        return f"{_ranks(ranks)} {_verb(ranks, 'wait')}{what}{_at(first)}; {numbers} never reported"
    if verdict.finding is Finding.SLEEPS:
        return f"{everyone} {_verb(ranks, 'sleep')}{_at(first)}"
    if all(rank.kind == MEETING for rank in ranks):
        text = f"{everyone} {_verb(ranks, 'wait')} for others to meet{_at(first)}"
        if first.size > len(ranks):
            have = "has" if len(ranks) == 1 else "have"
            return f"{text}: WORLD_SIZE is {first.size}, and {len(ranks)} of them {have} come"
        return text
    if first.pending is not None:
        return f"{everyone} {_verb(ranks, 'wait')} in {_in(first.pending)}{_at(first)}"
    return f"no rank does anything: {'; '.join(f'{name(r)} {_does(r)}' for r in ranks[:_NAMED])}"


def _does(rank: Rank) -> str:
    if rank.kind == LOOPING:
        return f"runs in a loop that changes nothing{_in_function(rank)}"
    if rank.kind == MEETING:
        return f"waits for others to meet, or for an answer of their store{_in_function(rank)}"
    if rank.kind == IDLE and rank.waits_for in SLEEPS:
        return f"sleeps{_in_function(rank)}"
    if rank.waits_for.startswith("/"):
        return f"waits for {rank.waits_for}{_in_function(rank)}"
    known = (word for start, word in _AWAITED.items() if rank.waits_for.startswith(start))
    return f"waits{next(known, '')}{_in_function(rank)}"


def _in_function(rank: Rank) -> str:
    return f" in {rank.line}" if rank.line is not None else ""


def _at(rank: Rank) -> str:
    return f" at {rank.line.short}" if rank.line is not None else ""


def _in(collective: Collective | None, *, apart: bool = False) -> str:
    """`apart`: not of the group that others are in, whose names torch counts or hashes."""
    if collective is None:
        return "one that torch does not record"
    sizes = f" of {collective.sizes}" if collective.sizes not in ("", "[]") else ""
    group = f" in process group {collective.group[:_GROUP_NAME]}" if apart else ""
    return f"{collective}{sizes}{group}"


def _missing(waiting: Sequence[Rank]) -> str:
    """The collective that the others wait in."""
    found = next((rank.pending for rank in waiting if rank.pending is not None), None)
    return str(found) if found else ""


def _has_entered(culprit: Rank, waiting: Sequence[Rank]) -> bool:
    found = next((rank.pending for rank in waiting if rank.pending is not None), None)
    if found is None:
        return False
    return any((e.group, e.number) == (found.group, found.number) for e in culprit.ring)


def _waiters(waiting: Sequence[Rank]) -> str:
    places = {rank.line.short for rank in waiting if rank.line is not None}
    where = f" in {places.pop()}" if len(places) == 1 else ""
    return f"{_ranks(waiting)} {_verb(waiting, 'wait')}{where}"


def _ranks(ranks: Sequence[Rank]) -> str:
    return _numbers([rank.rank for rank in ranks])


def _numbers(ranks: Sequence[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > _NAMED:
        return f"ranks {', '.join(numbers[:_NAMED])} and {len(numbers) - _NAMED} more"
    return f"ranks {', '.join(numbers)}"


def _verb(ranks: Sequence[Rank], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def apart(size: int) -> str:
    """Of a job that has succeeded though its ranks have never met."""
    return (
        f"No process group of torch.distributed was made: each of the {size} ranks has worked "
        "on its own, and what rank 0 has trained is its own alone."
    )
