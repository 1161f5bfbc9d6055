"""A job that was stored although it is invalid: it fails, and gets no pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.api.reasons import ConditionReason, EventReason, Phase
from trainyard.lifecycle import conditions
from trainyard.lifecycle.actions import Event, Plan
from trainyard.lifecycle.conditions import Conditions
from trainyard.lifecycle.timestamps import render


def plan_invalid(
    kind: str,
    name: str,
    generation: int,
    problems: Sequence[str],
    status: Mapping[str, Any] | None,
    now: datetime,
) -> Plan:
    """`problems` are texts with paths; all of them are told."""
    before = dict(status or {})
    if before.get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
        return Plan(None)
    message = f"{kind} {name} is invalid: " + "; ".join(problems)
    held = Conditions(before.get("conditions") or (), now)
    conditions.failure(held, ConditionReason.INVALID_SPEC, message)
    new = before | {
        "phase": Phase.FAILED.value,
        "conditions": held.encode(),
        "completionTime": render(now),
        "observedGeneration": generation,
    }
    return Plan(new, events=(Event("Warning", EventReason.INVALID_SPEC.value, message),))
