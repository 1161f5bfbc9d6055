"""How often the same collectives come again: the sequences of real trainings, and any others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.payloads.observer.collective_cadence import FEWEST, REPEATS, cadence, find_period

FORWARD = ["all_gather 1", "all_gather 2", "all_gather 3"]
BACKWARD = ["all_gather 3", "all_reduce 3", "all_gather 2", "all_reduce 2", "all_reduce 1"]


def by_hand(marks: Sequence[object]) -> tuple[int, int]:
    """What is promised, tried one by one."""
    for run in range(len(marks), max(FEWEST, (len(marks) + 1) // 2) - 1, -1):
        last = marks[len(marks) - run :]
        for length in range(1, run // REPEATS + 1):
            if all(last[n] == last[n - length] for n in range(length, run)):
                return length, run
    return 0, 0


marks = st.lists(st.integers(0, 2), max_size=60)


@given(marks)
def test_any_marks(found: list[int]) -> None:
    assert find_period(found) == by_hand(found)


@given(marks, st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 12), st.data())
def test_marks_that_repeat_themselves(
    before: list[int], part: list[int], times: int, data: st.DataObject
) -> None:
    begun = part[: data.draw(st.integers(0, len(part)))]
    found = [*before, *part * times, *begun]
    assert find_period(found) == by_hand(found)


@pytest.mark.parametrize(
    ("marks", "length"),
    [
        (["buckets of the first step", *["a", "b"] * 20], 2),
        ((FORWARD + BACKWARD) * 6, 8),
        # In the middle of a step, whose last ones are all alike.
        (["x"] * 5 + (["gather"] * 12 + ["reduce"] * 12) * 6 + ["gather"] * 7, 24),
        # A loss that is summed up every ten steps cannot be told from ten parts of one step.
        ((["a", "b"] * 10 + ["loss"]) * 5, 21),
        # An evaluation: unknown until half of all are of what came after it.
        (["a", "b"] * 30 + ["accuracy"] + ["a", "b"] * 20, 0),
        (["a", "b"] * 30 + ["accuracy"] + ["a", "b"] * 31, 2),
        # Lengths that differ from batch to batch.
        ([f"all_gather {n * n}" for n in range(100)], 0),
        (["a"] * (FEWEST - 1), 0),
        (["a"] * FEWEST, 1),
        ([], 0),
    ],
)
def test_what_trainings_do(marks: list[str], length: int) -> None:
    assert find_period(marks)[0] == length


def test_it_takes_no_longer_than_it_has_to() -> None:
    """Sequences that are hard for searches that go back."""
    for hard in (["a"] * 50_000 + ["b"], (["a"] * 99 + ["b"]) * 500 + ["c"]):
        assert find_period(hard) == (0, 0)


def entries(count: int, second: float = 0.25, pause: int = -1) -> list[dict[str, Any]]:
    """Two all_reduces a step; after one of them there is a checkpoint."""
    return [
        {
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "input_sizes": [[64 + n % 2]],
            "time_created_ns": int(1e18 + 1e9 * (n // 2 * second + 30 * (n > pause > 0))),
        }
        for n in range(count)
    ]


def test_the_seconds_are_those_of_most_times() -> None:
    assert cadence(entries(60)) == [2, 0.25]
    assert cadence(entries(60, pause=50)) == [2, 0.25]


def test_what_is_the_same_has_the_same_operation_shapes_and_group() -> None:
    for name, other in (
        ("input_sizes", [[8]]),
        ("profiling_name", "gloo:broadcast"),
        ("process_group", ["1", "pipeline"]),
    ):
        found = entries(60)
        found[40][name] = other
        assert cadence(found) == [], name


def test_a_clock_that_stands_still_tells_nothing() -> None:
    assert cadence(entries(60, second=0)) == []
    assert cadence(entries(60, second=-1)) == []
    assert cadence([]) == []
    assert cadence([{}] * 60) == []
