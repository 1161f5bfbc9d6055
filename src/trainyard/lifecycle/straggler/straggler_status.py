"""Ranks that are late again and again: `status.stragglers`, and one event when one is named.

What was found is of the one controller that heard the ranks; who is named stays so in the status
until another finds otherwise, or the replica's pod is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared.reasons import EventReason
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.lifecycle.straggler.straggler_detector import Straggler
from trainyard.schema.times import render

MAX_NAMED = 8
"""Ranks that are named, the latest ones."""

StatusField = dict[str, Any]


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Put those that are late into the status, with an event where there are new ones."""
    if context.workload.hang is None or context.workload.debug:
        status.fields.pop("stragglers", None)
        return NOTHING
    attempts = {
        replica.name: replica.pod.attempt
        for replica in context.view.replicas
        if replica.pod is not None
    }
    before = [
        each
        for each in _stored_stragglers(context.before)
        if attempts.get(each["replica"]) == each["attempt"]
    ]
    late = context.observed.reports.stragglers
    if late is None:
        named = before
    else:
        known = {each["rank"]: each for each in before}
        present = [each for each in late if attempts.get(each.pod) == each.attempt]
        named = [known.get(each.rank) or _entry(each, context) for each in present[:MAX_NAMED]]
        new = [each for each in present[:MAX_NAMED] if each.rank not in known]
        if new:
            names = {replica.name: replica.short_name for replica in context.view.replicas}
            text = "; ".join(_text(each, names) for each in new)
            status.events.append(Event("Warning", EventReason.STRAGGLER.value, f"{text}."))
    if named:
        status.fields["stragglers"] = named
    else:
        status.fields.pop("stragglers", None)
    return NOTHING


def _entry(late: Straggler, context: ReconcileContext) -> StatusField:
    return {
        "replica": late.pod,
        "attempt": late.attempt,
        "rank": late.rank,
        "latePercent": _percent(late),
        "since": render(context.now),
    }


def _percent(late: Straggler) -> int:
    return round(100 * late.share)


def _text(late: Straggler, names: Mapping[str, str]) -> str:
    who = f"{names[late.pod]} (rank {late.rank})"
    return f"{who} is late at most collectives: others wait for it {_percent(late)}% of the time"


def _stored_stragglers(status: Mapping[str, Any]) -> list[StatusField]:
    """As it was told; what others wrote there and makes no sense was never told."""
    found = status.get("stragglers")
    wanted = {"replica", "attempt", "rank", "since"}
    listed = found if isinstance(found, list) else []
    return [dict(each) for each in listed if isinstance(each, dict) and each.keys() >= wanted]
