"""What a program ended by, and whether another start would end the same way (decision 230).

`failures.json` holds what real programs wrote (`record.py`); each was run twice.
"""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.unit.evidence.record import FILE, PROGRAMS
from trainyard.evidence.permanent_causes import permanent_cause

RECORDED = cast("dict[str, list[tuple[int, str]]]", json.loads(FILE.read_text()))
SHARE = 0.95


def is_same(name: str) -> bool:
    """Whether the judge would take both ends for one that lasts."""
    first, second = (permanent_cause(c, "Error", m) for c, m in RECORDED[name])
    return first is not None and second is not None and first.key == second.key


def test_what_is_recorded_are_the_programs_that_are_listed() -> None:
    assert [*RECORDED] == [*PROGRAMS]
    assert len(RECORDED) >= 100


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("P")])
def test_nothing_that_may_pass_is_taken_for_lasting(name: str) -> None:
    assert not is_same(name), RECORDED[name]


def test_most_of_what_lasts_is_known() -> None:
    lasting = [name for name in RECORDED if name.startswith("L")]
    missed = [name for name in lasting if not is_same(name)]
    assert len(missed) <= len(RECORDED) * (1 - SHARE), missed


def test_a_kill_for_want_of_memory_lasts_and_another_does_not() -> None:
    assert permanent_cause(137, "OOMKilled", "") is not None
    assert permanent_cause(137, "Error", "") is None


STACK = 'Current thread 0x1 (most recent call first):\n  File "/work/train.py", line 3 in main'


def test_a_crash_lasts_but_not_an_abort_of_which_only_the_log_says_why() -> None:
    """NCCL aborts when a peer is lost: its words are not in a termination message with a stack."""
    crash = permanent_cause(139, "Error", f"Fatal Python error: Segmentation fault\n\n{STACK}")
    assert crash is not None
    assert crash.text == "Segmentation fault (train.py:3 in main)"
    assert permanent_cause(134, "Error", f"Fatal Python error: Aborted\n\n{STACK}") is None


@pytest.mark.parametrize("reason", ["Evicted", "LaunchTimeout", "ContainerStatusUnknown"])
def test_what_somebody_ended_does_not_last(reason: str) -> None:
    assert permanent_cause(3, reason, "ValueError: x") is None


@pytest.mark.parametrize(
    "message", ["\0" * 5000, "Traceback (most recent call last):\n" * 200, "]"]
)
def test_odd_words_are_no_trouble(message: str) -> None:
    permanent_cause(1, "Error", message)


def test_what_varies_from_one_end_to_the_next_is_no_part_of_the_cause() -> None:
    messages = (f"2026-01-0{n}T10:00:0{n} ERROR [pid 1234{n}] vocabulary is empty" for n in "12")
    one, two = (permanent_cause(3, "Error", words) for words in messages)
    assert one is not None
    assert two is not None
    assert one.key == two.key
    assert one.text != two.text
