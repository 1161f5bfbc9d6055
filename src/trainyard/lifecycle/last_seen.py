"""Where a rank stood, by its last report, that ended without a word: killed, or by `os._exit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.lifecycle.hang.rank_reports import Frame, RankReport
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import Exit
from trainyard.lifecycle.replica_view import Replica
from trainyard.schema.times import duration

_TERMINATED = (130, 143)
"""Ends that somebody asked for."""
_MEMORY_SAMPLES = 3


def last_seen(context: ReconcileContext, replica: Replica) -> dict[str, Any]:
    """For an element of `status.attempts`: `lastSeen`, if anything is known."""
    from trainyard.evidence.launcher_reports import (  # starting up needs it not
        BlamedRank,
        find_blamed_rank,
    )

    end = replica.exit or Exit()
    if not end.code or end.code in _TERMINATED:
        return {}
    # Where a launcher names the rank or its replica, that may be another one.
    blamed = find_blamed_rank(end.message.split("\n")) or BlamedRank()
    ranks = context.observed.reports.ranks
    if blamed.rank is not None:
        ranks = tuple(each for each in ranks if each.rank == blamed.rank)
    else:
        host = blamed.host.partition(".")[0]
        names = {r.name for r in context.view.replicas if host and r.name.endswith(f"-{host}")}
        ranks = tuple(each for each in ranks if each.pod in (names or {replica.name}))
    attempt = context.internal.wanted(replica.name)
    newest = max(
        (each for each in ranks if each.attempt == attempt),
        key=lambda each: each.received_at,
        default=None,
    )
    if newest is None or newest.line is None:
        return {}
    return {"lastSeen": _text(newest, newest.line, end)}


def _text(report: RankReport, line: Frame, end: Exit) -> str:
    before = (end.at - report.received_at).total_seconds() if end.at else 0.0
    age = f"{duration(before)} before its end" if before >= 1 else "at its end"
    place = f"{line.short} in {line.function}"
    return f"rank {report.rank} stood at {place}, {age}{_memory(report.memory)}"


def _memory(samples: Sequence[tuple[float, int]]) -> str:
    """The newest with what it was before."""
    if not samples:
        return ""
    (_, now), *before = samples[:_MEMORY_SAMPLES]
    since = ", ".join(f"{mebibytes:,} {duration(seconds)} before" for seconds, mebibytes in before)
    text = f"; its memory was {now:,} MiB"
    return f"{text} ({since})" if since else text
