"""What pause, resume, scale and wait decide before they ask the server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.objects import condition, found, job
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_actions import check_size, pause_patch
from trainyard.client.job_waiting import parse_goal


def elastic(**values: Any) -> dict[str, Any]:
    return {"elastic": {"enabled": True, "expectedReplicas": 2, "maxReplicas": 4, **values}}


def test_a_pause_changes_the_one_field() -> None:
    assert pause_patch(found(job()), True) == {"spec": {"runMode": {"pause": {"enabled": True}}}}


def test_a_job_stored_in_the_old_spelling_is_resumed_too() -> None:
    stored = found(job(spec={"runMode": {"pause": {"enable": True}}}))
    assert stored.is_paused
    patch = pause_patch(stored, False)
    assert patch["spec"]["runMode"]["pause"] == {"enabled": False, "enable": None}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_size_within_the_bounds_is_accepted(size: int) -> None:
    assert check_size(found(job("Running", spec=elastic())), size) == 2


@pytest.mark.parametrize(
    ("obj", "size", "message"),
    [
        (job(spec=elastic()), 5, "allows 1 to 4"),
        (job(spec=elastic(minReplicas=2)), 1, "allows 2 to 4"),
        (job(), 2, "not elastic"),
        (job(kind="GenericJob"), 2, "a GenericJob is never elastic"),
        (job("Failed", spec=elastic()), 3, r"has ended \(Failed\)"),
    ],
)
def test_an_impossible_size_is_refused_with_its_reason(
    obj: dict[str, Any], size: int, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        check_size(found(obj), size)


@pytest.mark.parametrize(
    ("goal", "obj", "reached"),
    [
        ("end", job("Succeeded"), True),
        ("end", job("Failed"), False),
        ("phase=running", job("Running"), True),
        ("phase=Running", job("Pending"), False),
        ("condition=completed", job("x", conditions=[condition("Completed", "True")]), True),
        ("condition=Completed", job("x", conditions=[condition("Completed", "False")]), False),
        ("condition=Completed=false", job("x", conditions=[condition("Completed", "False")]), True),
        ("condition=Completed", job(), False),
        ("delete", job("Succeeded"), False),
    ],
)
def test_a_goal_is_reached_or_not(goal: str, obj: dict[str, Any], reached: bool) -> None:
    assert parse_goal(goal).is_reached(found(obj)) is reached


@pytest.mark.parametrize("text", ["", "phase", "phase=Sleeping", "condition=Odd", "end=1", "moon"])
def test_an_unknown_goal_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"write end, delete|is one of"):
        parse_goal(text)
