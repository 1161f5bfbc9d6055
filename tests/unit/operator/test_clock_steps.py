"""A step of the wall clock leaves of a delay or deadline what was left of it before."""

from __future__ import annotations

import json
from typing import Any

from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.operator.reconcile.clock_steps import ClockSteps
from trainyard.operator.reconcile.job_records import JobRecord


def job(status: dict[str, Any]) -> JobRecord:
    kind = JOB_KINDS["GenericJob"]
    metadata = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    return JobRecord.decode(kind, {"metadata": metadata | {"generation": 1}, "status": status})


STATUS = {
    "startTime": "2026-01-01T10:00:00Z",
    "internal": {
        "attempt": 2,
        "replicas": {"worker-0": {"attempt": 2, "notBefore": "2026-01-01T10:05:03.200000Z"}},
    },
    "goodput": {"asOf": "2026-01-01T10:05:00Z"},
    "attempts": [
        {"number": 1, "startTime": "2026-01-01T10:00:00Z", "endTime": "2026-01-01T10:05:00Z"},
        {"number": 2, "startTime": "2026-01-01T10:05:00Z"},
    ],
    "conditions": [{"type": "Running", "lastTransitionTime": "2026-01-01T10:05:00Z"}],
}
HOUR_LATER = json.loads(
    json.dumps(STATUS | {"attempts": STATUS["attempts"][1:], "conditions": []}).replace(
        "T10:", "T11:"
    )
) | {
    "attempts": [STATUS["attempts"][0], {"number": 2, "startTime": "2026-01-01T11:05:00Z"}],
    "conditions": STATUS["conditions"],
}


class Offset:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_clock_that_is_not_set_changes_nothing() -> None:
    offset = Offset()
    steps, stored = ClockSteps(offset), job(STATUS)
    for seconds in (1000.0, 1000.4, 999.6):
        offset.seconds = seconds
        assert steps.adjusted(stored) is stored


def test_moments_move_with_the_clock_whether_or_not_they_are_stored_so() -> None:
    offset = Offset()
    steps = ClockSteps(offset)
    steps.adjusted(job(STATUS))
    offset.seconds += 3600
    for _ in range(2):
        moved = steps.adjusted(job(STATUS))
        assert moved.status == HOUR_LATER
        assert moved.key == job(STATUS).key
    assert steps.adjusted(job(HOUR_LATER)).status == HOUR_LATER
    offset.seconds -= 3600
    assert steps.adjusted(job(HOUR_LATER)).status == STATUS
    assert steps.adjusted(job(STATUS)).status == STATUS


def test_moments_after_a_step_stay() -> None:
    offset = Offset()
    steps = ClockSteps(offset)
    steps.adjusted(job(STATUS))
    offset.seconds -= 3600
    steps.adjusted(job(STATUS))
    new = {**STATUS, "completionTime": "2026-01-01T09:20:00Z"}
    assert steps.adjusted(job(new)).status["completionTime"] == "2026-01-01T09:20:00Z"  # type: ignore[index]


def test_a_job_that_is_first_seen_after_a_step_is_taken_as_it_is() -> None:
    offset = Offset()
    steps = ClockSteps(offset)
    offset.seconds += 3600
    stored = job(STATUS)
    assert steps.adjusted(stored) is stored
    steps.forget("u")
    offset.seconds += 3600
    assert steps.adjusted(stored) is stored
