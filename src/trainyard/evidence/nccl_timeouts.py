"""Reads what the watchdog of torch's NCCL says before it aborts a process: who waited for what.

Each rank that waited says so of itself, and how far it had come. The rank that did not come has
enqueued less, or says nothing. By the words that people report of torch 2.4 and newer
(`ProcessGroupNCCL.cpp`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainyard.schema.dataclass import dataclass

_LONGEST = 2000
_OPENING = (
    r"(?:\[rank(?P<rank>\d{1,6})\]:.{,120}?)?"
    r"\[(?:PG (?P<group>[^\]]{1,80}) )?Rank (?P<own>\d{1,6})\]"
)
"""The rank in the job where torch puts it before the line, the group, and the rank in that."""
_WAITED = re.compile(
    _OPENING
    + r".*?Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), "
    r"OpType=(?P<operation>\w+).*?ran for (?P<milliseconds>\d+) milliseconds"
)
_REACHED = re.compile(
    _OPENING + r"(?:.*?\bwork(?: sequence id)?: (?P<at>\d+)\b)?"
    r".*?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed"
)
_EVERYONE = re.compile(r"(?:ID 0 PG GUID |GUID )?0\b.*")
"""How the group of all ranks is called, where it is."""
ALL_RANKS = "0"


class _Wait(NamedTuple):
    rank: int
    number: int
    operation: str
    seconds: int
    group: str
    """Empty where this version does not say it here."""


class _Reach(NamedTuple):
    rank: int
    group: str
    at: int
    """What it waited for; -1 where it does not say so."""
    enqueued: int


@dataclass(frozen=True, slots=True)
class NcclTimeout:
    """A collective that ranks waited for in vain."""

    operation: str
    """As NCCL calls it: `ALLREDUCE`."""
    number: int
    group: str
    """`0` of all ranks; else as torch calls it."""
    seconds: int
    waited: tuple[int, ...]
    """The ranks that say that they did."""
    missing: tuple[int, ...]
    """The ranks that have not enqueued it, or say nothing."""
    last_enqueued: Mapping[int, int]
    """Of those who say so."""


def find_nccl_timeout(logs: Iterable[Sequence[str]], size: int) -> NcclTimeout | None:
    """The one that was told in these logs of all replicas, that of which somebody is late before
    others, which were for ranks that waited there; `size` is how many ranks there are, 0 where that
    is not known. None where no log tells of any."""
    lines = [line[:_LONGEST] for log in logs for line in log]
    reached = [_reach(found) for found in map(_REACHED.search, lines) if found]
    waits = [_wait(found, reached) for found in map(_WAITED.search, lines) if found]
    if not waits:
        return None
    first = next((each for each in waits if _late(each, reached)), waits[0])
    same = [each for each in waits if (each.group, each.number) == (first.group, first.number)]
    waited = {each.rank for each in same}
    told = {each.rank: each.enqueued for each in reached if each.group == first.group}
    late = _late(first, reached) - waited
    if not late and first.group == ALL_RANKS:
        late = set(range(size)) - waited - set(told)
    return NcclTimeout(
        operation=first.operation,
        number=first.number,
        group=first.group,
        seconds=max(each.seconds for each in same),
        waited=tuple(sorted(waited)),
        missing=tuple(sorted(late)),
        last_enqueued=told,
    )


def _late(wait: _Wait, reached: Sequence[_Reach]) -> set[int]:
    """Who of that group says that it has not come so far."""
    return {r.rank for r in reached if r.group == wait.group and r.enqueued < wait.number}


def _reach(found: re.Match[str]) -> _Reach:
    return _Reach(_rank(found), _group(found), int(found["at"] or -1), int(found["enqueued"]))


def _wait(found: re.Match[str], reached: Sequence[_Reach]) -> _Wait:
    rank, number = _rank(found), int(found["number"])
    group = _group(found) if found["group"] else ""
    if not group:
        its = (each.group for each in reached if (each.rank, each.at) == (rank, number))
        group = next(its, ALL_RANKS)
    return _Wait(rank, number, found["operation"], int(found["milliseconds"]) // 1000, group)


def _group(found: re.Match[str]) -> str:
    name = found["group"] or ALL_RANKS
    return ALL_RANKS if _EVERYONE.fullmatch(name) else name


def _rank(found: re.Match[str]) -> int:
    return int(found["rank"] if found["rank"] is not None else found["own"])


def says_rank(line: str, rank: int) -> bool:
    """Whether a line is of that rank, as torch tags what its C++ writes."""
    return line[:_LONGEST].find(f"[rank{rank}]:") >= 0
