"""Makes a failing run small: leaves out what it can do without and still break the same invariant.

Delta debugging over the elements of the scenario (https://doi.org/10.1109/32.988498): halves,
then quarters and so on, then single ones, until none can go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.invariants import Violation
from tests.simulation.run import simulate
from tests.simulation.scenario import draw


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest run found that breaks the same invariant."""

    seed: int
    violation: str
    kept: tuple[str, ...]
    without: tuple[str, ...]

    def __str__(self) -> str:
        scenario = draw(self.seed).without(self.without)
        total = len(self.kept) + len(self.without)
        return "\n".join(
            [
                f"{self.violation}",
                f"{len(self.kept)} of the {total} elements of seed {self.seed} are enough:",
                *(f"  {line}" for line in scenario.describe()),
                f"replay: {self.command}",
            ]
        )

    @property
    def command(self) -> str:
        """What runs it again, with its log."""
        left_out = f" --without {','.join(self.without)}" if self.without else ""
        return f"python -m tests.simulation --seed {self.seed}{left_out} --trace diary.jsonl"


def violated(seed: int, without: tuple[str, ...] = ()) -> str:
    """The violation that a run ends with; "" when all goes well."""
    try:
        simulate(seed, without=without)
    except Violation as violation:
        return str(violation)
    return ""


def invariant(violation: str) -> str:
    """Which invariant a violation is of: its text without moment, names and numbers."""
    text = re.sub(r"^seed \d+: (t=[\d.]+: )?", "", violation)
    return re.sub(r"\b(first|second)[\w-]*|\b(master|worker|chief|ps|launcher)\b|\d+", "…", text)


def shrink(seed: int, without: tuple[str, ...] = ()) -> Shrunk | None:
    """The small run, which lacks what is left out already; None for one that does not fail."""
    first = violated(seed, without)
    if not first:
        return None
    everything = tuple(draw(seed).elements())

    def fails(kept: tuple[str, ...]) -> bool:
        left_out = tuple(name for name in everything if name not in kept)
        return invariant(violated(seed, left_out)) == invariant(first)

    kept = _smallest(tuple(name for name in everything if name not in without), fails)
    without = tuple(name for name in everything if name not in kept)
    return Shrunk(seed, violated(seed, without), kept, without)


def _smallest(kept: tuple[str, ...], fails: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    size = max(1, len(kept) // 2)
    while True:
        before = kept
        for start in range(len(kept) - 1, -1, -size):
            low = max(0, start - size + 1)
            fewer = kept[:low] + kept[start + 1 :]
            if fails(fewer):
                kept = fewer
        if size == 1 and kept == before:
            return kept
        size = max(1, size // 2)
