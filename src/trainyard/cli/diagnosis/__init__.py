"""Why a job is not where its user wants it, from what the API tells. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainyard.cli.diagnosis import ended, pods, waiting
from trainyard.cli.diagnosis.situation import Cause, Situation

__all__ = ["Cause", "Situation", "causes", "headline", "warnings"]

_Rule = Callable[[Situation], Iterable[Cause]]

_RULES: tuple[_Rule, ...] = (
    waiting.being_deleted,
    ended.succeeded,
    ended.failed,
    waiting.paused,
    waiting.not_seen,
    waiting.troubled,
    waiting.restarting,
    pods.lost,
    pods.stuck,
    pods.unschedulable,
    pods.not_starting,
    waiting.resuming,
    waiting.in_debug,
    pods.awaited,
    waiting.degraded,
    pods.starting,
)
"""Gravest first: what a later rule finds may follow from what an earlier one found."""
_CONCLUSIVE = frozenset({waiting.being_deleted, ended.succeeded, ended.failed, waiting.paused})
"""Rules that leave nothing to add once they apply."""

_FALLBACKS = frozenset({waiting.resuming, pods.starting})
"""Rules that say no more than the phase; for want of something better."""

_TOLD = frozenset({"FailedScheduling", "Restart", "ReplicaFailure", "Failed", "BackOff"})
"""Reasons of warnings that the causes tell in other words."""


def causes(situation: Situation) -> list[Cause]:
    """Every cause that applies, the gravest first; none for a job that simply runs."""
    found: list[Cause] = []
    for rule in _RULES:
        if rule in _FALLBACKS and found:
            continue
        more = list(rule(situation))
        found += more
        if more and rule in _CONCLUSIVE:
            break
    return found


def headline(situation: Situation, found: list[Cause]) -> str:
    """One sentence on where the job stands."""
    state = "being deleted" if situation.is_deleting else situation.phase
    if found:
        return f"{situation.title} is {state}: {found[0].what}"
    counts = situation.status.get("aggregate") or {}
    running = (
        f" {counts.get('running', 0)} of {sum(counts.values())} replicas run." if counts else ""
    )
    return f"{situation.title} is {state}, and nothing is wrong with it that can be seen.{running}"


def warnings(situation: Situation, found: Iterable[Cause] = ()) -> list[str]:
    """What else the cluster warned of, each once, newest last."""
    told = "\n".join("\n".join((cause.what, *cause.evidence)) for cause in found)
    texts = [
        f"{event.get('reason')}: {message}"
        for event in situation.events
        if event.get("type") == "Warning"
        and event.get("reason") not in _TOLD
        and (message := (event.get("message") or "").strip()) not in told
    ]
    return list(dict.fromkeys(texts))
