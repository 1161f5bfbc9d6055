"""A job that hangs, or seems to, in words."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.lifecycle.hang.hang_detector import SLEEPS, Finding, HangVerdict
from trainyard.lifecycle.hang.rank_reports import (
    IDLE,
    LOOPING,
    MEETING,
    WAITING,
    Collective,
    Frame,
    RankReport,
)

RANKS_ADVANCE = "The ranks get on, as far as they are observed."
_WAIT_TEXTS = {
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
_MAX_NAMED, _GROUP_NAME = 8, 12
_MAX_STACKS = 262_144
"""Characters; a ConfigMap has room for a MiB."""


def describe(verdict: HangVerdict) -> str:
    """`worker-1 (rank 1) has not entered all_reduce #6; it sleeps in wait_for_peer, train.py:5;
    ranks 0, 2, 3 wait in train.py:12`; an event has room for 1,024 characters."""
    culprit, waiting = verdict.culprit, verdict.waiting
    if culprit is None:
        return _describe_without_culprit(verdict)
    who, missing = describe_rank(culprit), _awaited_collective(waiting)
    behind = f"; {_waiters(waiting)}"
    has_missed = bool(missing) and not _has_entered(culprit, waiting)
    lacks = f", and has not entered {missing}" if has_missed else ""
    if verdict.is_gone:
        return f"{who} has ended{lacks}{behind}"
    if verdict.finding is Finding.STOPPED:
        seen = f"; it was last seen in {culprit.line}" if culprit.line is not None else ""
        return f"{who} is stopped by a signal{lacks}{seen}{behind}"
    if verdict.finding is Finding.SUSPECT:
        return f"{who} says nothing any more: it is stopped, or holds its interpreter lock{behind}"
    if verdict.finding is Finding.BUSY:
        wait = _conjugate(waiting, "wait")
        if culprit.kind == WAITING:  # its program does, and not its device
            return (
                f"{_ranks(waiting)} {wait} for {who}, whose device has not come to {missing}"
                f"{_at_line(culprit)}"
            )
        return f"{_ranks(waiting)} {wait} for {who}, which is busy{_at_line(culprit)}"
    if verdict.finding is Finding.MISMATCH:
        own, theirs = culprit.pending, waiting[0].pending
        apart = own is not None and theirs is not None and own.group != theirs.group
        return (
            f"the collectives do not match: {who} is in {_in_collective(own, apart=apart)}"
            f"{_at_line(culprit)}; {_ranks(waiting)} {'is' if len(waiting) == 1 else 'are'} in "
            f"{_in_collective(theirs, apart=apart)}{_at_line(waiting[0])}"
        )
    if has_missed:
        return f"{who} has not entered {missing}; it {_activity(culprit)}{behind}"
    return f"{who} {_activity(culprit)}{behind}"


def describe_rank(rank: RankReport) -> str:
    """`worker-1 (rank 1)`."""
    return f"{rank.pod} (rank {rank.rank})"


def event_text(text: str) -> str:
    """As an event, which has room for 1,024 characters."""
    return f"{text[:1000]}."


def format_stacks(ranks: Sequence[RankReport]) -> str:
    """The stacks of all ranks, equal ones told once and the odd ones first, innermost frame first,
    and their last collectives."""
    groups: dict[tuple[str, tuple[Frame, ...]], list[RankReport]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.rank):
        groups.setdefault((rank.kind, rank.frames), []).append(rank)
    parts = []
    for (kind, frames), alike in sorted(groups.items(), key=_rarity):
        names = ", ".join(describe_rank(rank) for rank in alike)
        lines = [
            f"{names}: {kind.lower()}",
            *(f"    {f.function} ({f.file}:{f.line})" for f in frames),
        ]
        for rank in alike:
            if rank.ring:
                entries = ", ".join(f"{e}{'' if e.done else ' (not done)'}" for e in rank.ring)
                lines.append(f"    collectives of rank {rank.rank}: {entries}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)[:_MAX_STACKS]


def _rarity(group: tuple[tuple[str, tuple[Frame, ...]], list[RankReport]]) -> tuple[int, bool]:
    """Few are odd, and of as many those that do not wait for others."""
    (kind, _), alike = group
    return len(alike), kind in (WAITING, MEETING)


def _describe_without_culprit(verdict: HangVerdict) -> str:
    ranks = verdict.waiting
    first = ranks[0]
    everyone = "the only rank" if len(ranks) == 1 else f"all {len(ranks)} ranks"
    if verdict.unseen:
        numbers = _numbers(verdict.unseen)
        missing = _awaited_collective(ranks)
        what = f" in {missing}" if missing else ""
        wait = f"{_conjugate(ranks, 'wait')}{what}{_at_line(first)}"
        return f"{_ranks(ranks)} {wait}; {numbers} never reported"
    if verdict.finding is Finding.SLEEPS:
        return f"{everyone} {_conjugate(ranks, 'sleep')}{_at_line(first)}"
    if all(rank.kind == MEETING for rank in ranks):
        text = f"{everyone} {_conjugate(ranks, 'wait')} for others to meet{_at_line(first)}"
        if first.size > len(ranks):
            have = "has" if len(ranks) == 1 else "have"
            return f"{text}: WORLD_SIZE is {first.size}, and {len(ranks)} of them {have} come"
        return text
    if first.pending is not None:
        wait = f"{_conjugate(ranks, 'wait')} in {_in_collective(first.pending)}"
        return f"{everyone} {wait}{_at_line(first)}"
    activities = "; ".join(f"{describe_rank(r)} {_activity(r)}" for r in ranks[:_MAX_NAMED])
    return f"no rank does anything: {activities}"


def _activity(rank: RankReport) -> str:
    if rank.kind == LOOPING:
        return f"runs in a loop that changes nothing{_in_function(rank)}"
    if rank.kind == MEETING:
        return f"waits for others to meet, or for an answer of their store{_in_function(rank)}"
    if rank.kind == IDLE and rank.waits_for in SLEEPS:
        return f"sleeps{_in_function(rank)}"
    if rank.waits_for.startswith("/"):
        return f"waits for {rank.waits_for}{_in_function(rank)}"
    known = (word for start, word in _WAIT_TEXTS.items() if rank.waits_for.startswith(start))
    return f"waits{next(known, '')}{_in_function(rank)}"


def _in_function(rank: RankReport) -> str:
    return f" in {rank.line}" if rank.line is not None else ""


def _at_line(rank: RankReport) -> str:
    return f" at {rank.line.short}" if rank.line is not None else ""


def _in_collective(collective: Collective | None, *, apart: bool = False) -> str:
    """`apart`: not of the group that others are in, whose names torch counts or hashes."""
    if collective is None:
        return "one that torch does not record"
    sizes = f" of {collective.sizes}" if collective.sizes not in ("", "[]") else ""
    group = f" in process group {collective.group[:_GROUP_NAME]}" if apart else ""
    return f"{collective}{sizes}{group}"


def _awaited_collective(waiting: Sequence[RankReport]) -> str:
    """The collective that the others wait in."""
    found = next((rank.pending for rank in waiting if rank.pending is not None), None)
    return str(found) if found else ""


def _has_entered(culprit: RankReport, waiting: Sequence[RankReport]) -> bool:
    found = next((rank.pending for rank in waiting if rank.pending is not None), None)
    if found is None:
        return False
    return any((e.group, e.number) == (found.group, found.number) for e in culprit.ring)


def _waiters(waiting: Sequence[RankReport]) -> str:
    places = {rank.line.short for rank in waiting if rank.line is not None}
    where = f" in {places.pop()}" if len(places) == 1 else ""
    return f"{_ranks(waiting)} {_conjugate(waiting, 'wait')}{where}"


def _ranks(ranks: Sequence[RankReport]) -> str:
    return _numbers([rank.rank for rank in ranks])


def _numbers(ranks: Sequence[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > _MAX_NAMED:
        return f"ranks {', '.join(numbers[:_MAX_NAMED])} and {len(numbers) - _MAX_NAMED} more"
    return f"ranks {', '.join(numbers)}"


def _conjugate(ranks: Sequence[RankReport], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb


def collectives_not_observed(why: str) -> str:
    """Of a job of which it is not known when its ranks begin and end collectives."""
    return (
        f"Collectives are not observed: {why}. Hangs are told by what else the ranks do, "
        "stragglers and progress without reports not at all."
    )


_ALONE_TEXTS = {
    "accelerate": "accelerate makes no use of the other processes (without GPUs it does with "
    "--env ACCELERATE_USE_CPU=true)",
    "mpi4py": "MPI knows of one process only, as without mpirun",
    "jax": "jax.distributed was not initialized",
}
"""By the library that says so, if not torch."""


def ranks_never_met(rank: RankReport) -> str:
    """Of a job of which one rank tells that it works without the others."""
    why = _ALONE_TEXTS.get(rank.library, "No process group of torch.distributed was made")
    return (
        f"{why}: each of the {rank.size} ranks works on its own, and what "
        f"rank {rank.rank} trains is its own alone."
    )


def ranks_in_separate_groups(one: RankReport, other: RankReport) -> str:
    """Of two replicas in which the same rank works."""
    first, second = sorted((one.pod, other.pod))
    return (
        f"{first} and {second} both have a rank {one.rank} of {one.size}: their process groups are "
        "not the same, and each of them trains a model of its own."
    )
