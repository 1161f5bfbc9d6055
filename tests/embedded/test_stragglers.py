"""Real ranks in real pods, of which one is slowed down from outside, and ranks that are all alike.

The ranks write down when they came to which collective. What is said of them is held against that,
and not against what the machine was thought to do: where others use it, a rank that was stopped for
a moment may lose nothing by it, and one that was not may well be late. With TRAINYARD_SOAK=1 there
are 40 runs of each sort.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.embedded.command_line import Object, until
from tests.embedded.late_ranks import SCRIPT, Ranks, slowed
from tests.embedded.lifecycle_yard import Yard, pytorch, template, yard

SOAK = bool(os.environ.get("TRAINYARD_SOAK"))
RUNS = 40 if SOAK else 1
LONG_SECONDS = 900.0
STEPS, NAMED_WITHIN = 40, 30
MUCH, THIRD = 1.5, 0.3
"""By how much longer than it needs a rank takes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("stragglers")) as found:
        yield found


class Training(Ranks):
    """A job of two ranks, which train until they are told to end."""

    def __init__(self, made: Yard, name: str, case: str = "even") -> None:
        super().__init__(made.data / name)
        self.made, self.name = made, name
        pods = template(["python", str(SCRIPT), f"/data/{name}", case])
        made.submit(pytorch(name, pods, replicas=2))
        self.await_steps(2)
        self.first = self.steps

    def await_steps(self, count: int) -> None:
        text = f"{self.name} makes {count} steps"
        until(lambda: self.steps >= count, text, LONG_SECONDS)

    def named(self) -> list[Object]:
        found: list[Object] = self.made.status(self.name).get("stragglers") or []
        return found

    def end(self) -> None:
        self.let_end()
        self.made.end(self.name, "Succeeded", LONG_SECONDS)
        self.made.run("delete", self.name, "--yes")

    def slowed(self, rank: int, share: float) -> AbstractContextManager[None]:
        found = self.made.with_environment(str(SCRIPT), RANK=str(rank))
        [pid] = [p for p in found if self.name in Path(f"/proc/{p}/cmdline").read_text()]
        return slowed(pid, share)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_slowed_down_is_named_until_it_keeps_up(made: Yard, rank: int) -> None:
    name = f"slowed-{rank}"
    training = Training(made, name)
    with training.slowed(rank, MUCH):
        until(
            lambda: rank in [each["rank"] for each in training.named()],
            f"{name} is named",
            LONG_SECONDS,
        )
        replica = f"worker-{rank} (rank {rank})"
        assert f"{replica} is late at most collectives" in made.run("explain", name)
        assert f"Late:         {replica}, for" in made.run("show", name)
        [line] = [text for text in made.run("top", name).splitlines() if f"worker-{rank}" in text]
        assert line.endswith("%")
    until(
        lambda: rank not in [each["rank"] for each in training.named()],
        f"{name} is named no more",
        LONG_SECONDS,
    )
    _, listed = made.api.request("GET", "/api/v1/namespaces/default/events")
    told = [each for each in listed["items"] if each["involvedObject"]["name"] == name]
    assert any(
        each["reason"] == "Straggler" and each["message"].startswith(replica) for each in told
    )
    training.end()


def test_how_fast_it_gets_on_is_told_by_its_collectives(made: Yard) -> None:
    """Of a script that tells nothing itself (decision 320)."""
    training = Training(made, "counted")

    def told() -> Object:
        found: Object = made.status("counted").get("progress") or {}
        return found

    until(lambda: "periodSeconds" in told().get("collectives", {}), "its cadence", LONG_SECONDS)
    found = told()["collectives"]
    times = training.times(0)
    # A broadcast, before them all.
    assert 16 <= found["count"] <= len(times) + 2
    assert found["periodCount"] == 1
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert min(gaps) / 2 <= found["periodSeconds"] <= 2 * max(gaps)
    assert found["perSecond"] > 0
    assert "collectives, " in made.run("list")
    assert "Progress:" in made.run("show", "counted")
    training.end()


@pytest.mark.parametrize("case", ["even", "first", "evaluates"] if SOAK else ["first", "evaluates"])
def test_nobody_is_named_who_was_not_late(made: Yard, case: str) -> None:
    for number in range(RUNS):
        training = Training(made, f"{case}-{number}", case)
        for step in range(training.first, training.first + STEPS):
            training.await_steps(step)
            for each in training.named():
                assert training.was_late(each["rank"]), training.lateness(each["rank"])
        print(f"run {number}: named {training.named()}", flush=True)
        training.end()


@pytest.mark.skipif(not SOAK, reason="TRAINYARD_SOAK=1 runs it")
def test_a_third_longer_is_found_within_thirty_steps(made: Yard) -> None:
    found, missed, not_slower = 0, 0, 0
    for number in range(RUNS):
        training = Training(made, f"third-{number}")
        with training.slowed(1, THIRD):
            last = training.first + NAMED_WITHIN
            until(lambda t=training, n=last: t.named() or t.steps >= n, "30 steps", LONG_SECONDS)
        is_named = [each["rank"] for each in training.named()] == [1]
        median = statistics.median(training.lateness(1, training.first))
        print(f"run {number}: named {is_named}, late by {median:.0%} of a step", flush=True)
        found += is_named
        missed += not is_named and median >= 0.15
        not_slower += not is_named and median < 0.15
        training.end()
    print(f"named {found}, missed {missed}, hardly late {not_slower} of {RUNS}")
    assert found + missed >= RUNS / 2, "the machine is too busy to slow one rank down by itself"
    assert found >= 0.95 * (found + missed)
