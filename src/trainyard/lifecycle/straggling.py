"""Ranks that are late again and again: `status.stragglers`, and one event when one is named.

What was found is of the one controller that heard the ranks; who is named stays so in the status
until another finds otherwise, or the replica's pod is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared.reasons import EventReason
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.hanging import short_name
from trainyard.lifecycle.passes import Pass
from trainyard.lifecycle.report import Report
from trainyard.lifecycle.stragglers import Late
from trainyard.schema.times import render

MOST = 8
"""Ranks that are named, the latest ones."""

Told = dict[str, Any]


def tell(job: Pass, report: Report) -> None:
    """Put those that are late into the status, with an event where there are new ones."""
    if job.workload.hang is None or job.workload.debug:
        report.status.pop("stragglers", None)
        return
    attempts = {
        replica.name: replica.pod.attempt
        for replica in job.view.replicas
        if replica.pod is not None
    }
    before = [
        each for each in _stored(job.before) if attempts.get(each["replica"]) == each["attempt"]
    ]
    late = job.observed.heard.late
    if late is None:
        named = before
    else:
        known = {each["rank"]: each for each in before}
        present = [each for each in late if attempts.get(each.pod) == each.attempt]
        named = [known.get(each.rank) or _entry(each, job) for each in present[:MOST]]
        new = [each for each in present[:MOST] if each.rank not in known]
        if new:
            names = {replica.name: short_name(replica) for replica in job.view.replicas}
            text = "; ".join(_text(each, names) for each in new)
            report.events.append(Event("Warning", EventReason.STRAGGLER.value, f"{text}."))
    if named:
        report.status["stragglers"] = named
    else:
        report.status.pop("stragglers", None)


def _entry(late: Late, job: Pass) -> Told:
    return {
        "replica": late.pod,
        "attempt": late.attempt,
        "rank": late.rank,
        "latePercent": _percent(late),
        "since": render(job.now),
    }


def _percent(late: Late) -> int:
    return round(100 * late.share)


def _text(late: Late, names: Mapping[str, str]) -> str:
    who = f"{names[late.pod]} (rank {late.rank})"
    return f"{who} is late at most collectives: others wait for it {_percent(late)}% of the time"


def _stored(status: Mapping[str, Any]) -> list[Told]:
    """As it was told; what others wrote there and makes no sense was never told."""
    found = status.get("stragglers")
    wanted = {"replica", "attempt", "rank", "since"}
    listed = found if isinstance(found, list) else []
    return [dict(each) for each in listed if isinstance(each, dict) and each.keys() >= wanted]
