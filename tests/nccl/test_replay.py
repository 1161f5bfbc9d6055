"""What is told of jobs over NCCL, replayed through observers, reports and controller passes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.nccl.fleet import AFTER_SECONDS
from tests.nccl.scenarios import COUNT, Scenario, hang, healthy
from tests.tools import soak
from trainyard.payloads.observer import flight_recorders

SECONDS = 3.0 * AFTER_SECONDS
RIGHT = 0.95
EVERY = soak(4, 1)
"""In a usual run one of so many."""


@pytest.fixture(autouse=True)
def _any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual seconds are too short for what may be spent in real ones."""
    monkeypatch.setattr(flight_recorders, "CPU_SHARE", 1e9)


def told(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The condition's reason and message, each time that it is another."""
    last = ("-", "")
    for _ in scenario.fleet.play(SECONDS):
        condition = scenario.fleet.world.condition("Hung")
        now = condition[1:] if condition is not None else ("-", "")
        if now != last:
            last = now
            yield now


def is_right(scenario: Scenario, reason: str, text: str) -> bool:
    """Whether the rank to blame is named, with the line."""
    head = text if reason == "CollectivesDiffer" else text.partition(";")[0]
    if f"(rank {scenario.odd})" not in head or len(re.findall(r"\(rank \d+\)", head)) > 1:
        return False
    return not scenario.line or f"train.py:{scenario.line}" in text


def test_of_a_hundred_hangs_nearly_all_are_told_with_rank_and_line() -> None:
    wrong, tried = [], range(0, COUNT, EVERY)
    for number in tried:
        scenario = hang(number)
        found = list(told(scenario))
        if not found or not is_right(scenario, *found[-1]):
            wrong.append((scenario.name, scenario.odd, scenario.line, found[-1:]))
    print(f"{len(tried) - len(wrong)} of {len(tried)} hangs", *wrong, sep="\n")
    assert len(wrong) <= len(tried) * (1 - RIGHT)


def test_of_a_hundred_healthy_runs_none_is_said_to_hang() -> None:
    wrong = []
    for number in range(0, COUNT, EVERY):
        scenario = healthy(number)
        found = [each for each in told(scenario) if each[0] not in ("-", "WaitsForBusyRank")]
        if found:
            wrong.append((scenario.name, found))
    assert not wrong
