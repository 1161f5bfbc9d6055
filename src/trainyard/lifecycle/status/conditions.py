"""`status.conditions`: one entry per aspect, with the time of its last change.

Types come in a fixed order. A condition's time moves only when its status changes, its texts may
change in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.reasons import ConditionReason, ConditionType, Phase
from trainyard.lifecycle import texts
from trainyard.schema.times import render

Condition = dict[str, Any]
_ORDER = list(ConditionType)
_TIME = "lastTransitionTime"


class Conditions:
    """The conditions of one pass; everything not set stays as it was."""

    def __init__(self, before: Iterable[Condition], now: datetime) -> None:
        self._now = render(now)
        # Whoever else may write a status may leave out what definitions do not require.
        blank = {"status": "", "reason": "", "message": "", _TIME: self._now}
        self._before: dict[str, Condition] = {
            c["type"]: c if blank.keys() <= c.keys() else {**blank, **c}
            for c in before
            if c.get("type")
        }
        self._items = dict(self._before)

    def set(self, kind: str, status: bool, reason: str, message: str) -> None:
        """Set a condition; its time moves with its status only."""
        value = "True" if status else "False"
        # https://github.com/kubernetes/community/blob/master/contributors/devel/
        # sig-architecture/api-conventions.md#typical-status-properties
        before = self._before.get(kind)
        same = before is not None and before["status"] == value
        self._items[kind] = {
            "type": str(kind),
            "status": value,
            "reason": str(reason),
            "message": message,
            "lastTransitionTime": before[_TIME] if before is not None and same else self._now,
        }

    def is_true(self, kind: str) -> bool:
        """Whether the condition is there and True."""
        return self._items.get(kind, {}).get("status") == "True"

    def has(self, kind: str) -> bool:
        """Whether the condition is there."""
        return kind in self._items

    def drop(self, kind: str) -> None:
        """Tell nothing of that aspect."""
        self._items.pop(kind, None)

    def get(self, kind: str) -> Mapping[str, Any]:
        """The condition, or an empty one."""
        return self._items.get(kind, {})

    def encode(self) -> list[Condition]:
        """As in status."""
        known = [self._items[kind] for kind in _ORDER if kind in self._items]
        return known + [c for kind, c in self._items.items() if kind not in _ORDER]


def set_not_finished(conditions: Conditions, *, runs: bool) -> None:
    """What holds for every job that has not ended."""
    text = texts.STILL_RUNNING if runs else texts.NOT_FINISHED
    conditions.set(ConditionType.COMPLETED, False, ConditionReason.NOT_FINISHED, text)


def set_replica_failure(conditions: Conditions, text: str) -> None:
    """A replica has failed and has not come back."""
    conditions.set(ConditionType.REPLICA_FAILURE, True, ConditionReason.ERROR_IN_POD, text)


def set_no_replica_failure(conditions: Conditions, text: str) -> None:
    """None has, or all that had are back."""
    reason = ConditionReason.FINISHED if text == texts.ALL_FINISHED else ConditionReason.NONE
    conditions.set(ConditionType.REPLICA_FAILURE, False, reason, text)


def set_running(conditions: Conditions, text: str) -> None:
    """All replicas run, or as many as the job needs."""
    conditions.set(ConditionType.RUNNING, True, ConditionReason.NONE, text)


def set_not_running(conditions: Conditions, reason: str, message: str) -> None:
    """Not all replicas run. Before they first do, only a reason is worth a condition."""
    if reason != ConditionReason.NONE or conditions.has(ConditionType.RUNNING):
        conditions.set(ConditionType.RUNNING, False, reason, message)


def set_succeeded(conditions: Conditions) -> None:
    """The job has ended well. `Completed` means ended, whichever way."""
    reason, message = ConditionReason.SUCCEEDED, texts.FINISHED
    conditions.set(ConditionType.RUNNING, False, reason, message)
    conditions.set(ConditionType.FAILED, False, reason, message)
    conditions.set(ConditionType.COMPLETED, True, reason, message)


def set_failed(conditions: Conditions, reason: str, message: str) -> None:
    """The job has ended badly. Decision 27: Completed is True here too."""
    conditions.set(ConditionType.RUNNING, False, reason, message)
    conditions.set(ConditionType.FAILED, True, reason, message)
    conditions.set(ConditionType.COMPLETED, True, reason, message)


def restore_final_conditions(
    conditions: Conditions, outcome: str, reason: str, message: str
) -> None:
    """The job has ended with that phase, whatever its conditions say (decision 105).

    `reason` and `message` are told where why it failed has been erased.
    """
    if conditions.is_true(ConditionType.PAUSED):
        conditions.drop(ConditionType.PAUSED)
    if outcome == Phase.SUCCEEDED:
        set_succeeded(conditions)
        return
    for kind in (ConditionType.FAILED, ConditionType.COMPLETED):
        if conditions.is_true(kind):
            before = conditions.get(kind)
            set_failed(conditions, before["reason"], before["message"])
            return
    set_failed(conditions, reason, message)
