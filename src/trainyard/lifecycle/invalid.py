"""A job that was stored although it is invalid: it fails, and gets no pods.

One that was changed into an invalid one while it ran is stopped: what it was is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, EventReason, Phase
from trainyard.lifecycle import cleanup, conditions
from trainyard.lifecycle.actions import Event, Plan
from trainyard.lifecycle.conditions import Conditions
from trainyard.lifecycle.observed import Pod
from trainyard.schema.times import render


def plan_invalid(
    kind: str,
    name: str,
    generation: int,
    problems: Sequence[str],
    status: Mapping[str, Any] | None,
    now: datetime,
    pods: Iterable[Pod] = (),
) -> Plan:
    """`problems` are texts with paths; all of them are told."""
    before = dict(status or {})
    held = Conditions(before.get("conditions") or (), now)
    if before.get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
        ours = held.get(ConditionType.FAILED).get("reason") == ConditionReason.INVALID_SPEC
        seen = before.get("observedGeneration") == generation
        new = None if seen else before | {"observedGeneration": generation}
        return Plan(new, tuple(cleanup.stop_all(pods)) if ours else ())
    message = f"{kind} {name} is invalid: " + "; ".join(problems)
    conditions.failure(held, ConditionReason.INVALID_SPEC, message)
    failed = before | {
        "phase": Phase.FAILED.value,
        "conditions": held.encode(),
        "completionTime": render(now),
        "observedGeneration": generation,
    }
    event = Event("Warning", EventReason.INVALID_SPEC.value, message)
    return Plan(failed, tuple(cleanup.stop_all(pods)), (event,))
