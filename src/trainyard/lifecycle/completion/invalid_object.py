"""A job that was stored although it is invalid: it fails, and gets no pods (decision 10).

One that was changed into an invalid one while it ran is stopped: what it was is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, EventReason, Phase
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Event, Plan
from trainyard.lifecycle.internal_status import final_phase
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pods import pod_cleanup
from trainyard.lifecycle.status import conditions
from trainyard.lifecycle.status.conditions import Conditions
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import render


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """An object that breaks rules. `problems` are texts with paths; all of them are told."""

    kind: str
    name: str
    generation: int
    problems: Sequence[str]

    @property
    def message(self) -> str:
        """All problems in one sentence."""
        return texts.invalid(self.kind, self.name, "; ".join(self.problems))


def plan_invalid(
    job: InvalidObject, status: Mapping[str, Any] | None, now: datetime, pods: Iterable[Pod] = ()
) -> Plan:
    """What to do about such a job now."""
    before = dict(status or {})
    current = Conditions(before.get("conditions") or (), now)
    if ended := final_phase(before):
        ours = current.get(ConditionType.FAILED).get("reason") == ConditionReason.INVALID_SPEC
        conditions.restore_final_conditions(
            current, ended, ConditionReason.INVALID_SPEC, job.message
        )
        new = before | {
            "phase": ended,
            "conditions": current.encode(),
            "observedGeneration": job.generation,
        }
        return Plan(
            new if new != before else None, tuple(pod_cleanup.stop_all(pods)) if ours else ()
        )
    current.drop(ConditionType.PAUSED)
    conditions.set_failed(current, ConditionReason.INVALID_SPEC, job.message)
    failed = before | {
        "phase": Phase.FAILED.value,
        "conditions": current.encode(),
        "completionTime": render(now),
        "observedGeneration": job.generation,
        "internal": (before.get("internal") or {}) | {"ended": Phase.FAILED.value},
    }
    event = Event("Warning", EventReason.INVALID_SPEC.value, job.message)
    return Plan(failed, tuple(pod_cleanup.stop_all(pods)), (event,))
