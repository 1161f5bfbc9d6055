"""Names the rank for which others waited until NCCL's watchdog ended them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainyard.diagnosis.first_failure import FailedReplica
from trainyard.diagnosis.log_meanings import Reading
from trainyard.diagnosis.situation import Situation
from trainyard.evidence.launcher_reports import count_processes
from trainyard.evidence.nccl_timeouts import NcclTimeout, find_nccl_timeout, says_rank
from trainyard.evidence.secondary_exceptions import is_secondary

_MOST_NAMED = 8
_ADVICE = (
    "look where {rank} was by then; runPolicy.hang tells it, with the line, before NCCL's timeout "
    "does, if its afterSeconds are fewer"
)


class MissingRank(NamedTuple):
    """What is to be said, and of whom: the rank and its replica, if these are known."""

    reading: Reading
    rank: int | None
    replica: str


def find_missing_rank(
    situation: Situation, suspect: FailedReplica, everyone: Sequence[FailedReplica]
) -> MissingRank | None:
    """Of an attempt that a watchdog ended; None of one that ended otherwise."""
    if suspect.raised is not None and not is_secondary(suspect.raised):
        return None
    processes = max(count_processes(each.tail.lines) for each in everyone)
    size = len(situation.job.replicas) * processes
    timeout = find_nccl_timeout([each.tail.lines for each in everyone], size)
    if timeout is None:
        return None
    first = timeout.missing[0] if timeout.missing else None
    replica = _replica_of(situation, first, everyone, processes) if first is not None else ""
    return MissingRank(_reading(timeout), first, replica)


def _reading(timeout: NcclTimeout) -> Reading:
    collective = f"{timeout.operation} #{timeout.number}"
    waited = f"{_ranks(timeout.waited)} waited {timeout.seconds} s"
    if not timeout.missing:
        return Reading(
            f"{waited} in vain for {collective}; no log tells which rank did not come to it",
            (_ADVICE.format(rank="each rank"),),
        )
    late = _ranks(timeout.missing)
    last = timeout.last_enqueued.get(timeout.missing[0], -1)
    begun = f": the last that it began was #{last}" if last >= 0 else ""
    return Reading(
        f"{late} did not come to {collective}, for which {waited}{begun}",
        (_ADVICE.format(rank=late),),
    )


def _ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {named}{more}"


def _replica_of(
    situation: Situation, rank: int, everyone: Sequence[FailedReplica], processes: int
) -> str:
    """The replica in which a rank was: that whose log it wrote to, or of its number."""
    for each in everyone:
        if any(says_rank(line, rank) for line in each.tail.lines):
            return situation.replica(each.pod)
    names = [str(each.get("name")) for each in situation.job.replicas]
    return situation.replica(names[rank]) if processes == 1 and rank < len(names) else ""
