"""What a set of runs has covered: which fault met which state of a job, and how rich runs were."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.diagnosis_judges import ROWS
from tests.simulation.run import Report


@dataclass(slots=True)
class Tally:
    """Sums over runs."""

    runs: int = 0
    calls: int = 0
    crashes: int = 0
    virtual_hours: float = 0.0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Count one run in."""
        self.runs += 1
        self.calls += report.calls
        self.crashes += report.crashes
        self.virtual_hours += report.virtual_seconds / 3600
        self.hits += report.hits
        self.ends.update(report.phases)
        self.texts += report.texts

    def merge(self, other: dict[str, Any]) -> None:
        """Count in what another process has counted."""
        self.runs += other["runs"]
        self.calls += other["calls"]
        self.crashes += other["crashes"]
        self.virtual_hours += other["virtual_hours"]
        self.hits += Counter({(fault, phase): n for fault, phase, n in other["hits"]})
        self.ends += Counter(other["ends"])
        self.texts += Counter(other["texts"])

    def dump(self) -> dict[str, Any]:
        """As plain values, for another process."""
        return {
            "runs": self.runs,
            "calls": self.calls,
            "crashes": self.crashes,
            "virtual_hours": self.virtual_hours,
            "hits": [(fault, phase, n) for (fault, phase), n in self.hits.items()],
            "ends": dict(self.ends),
            "texts": dict(self.texts),
        }

    def lines(self) -> list[str]:
        """A table of faults by the phase of the job that they met."""
        faults: dict[str, Counter[str]] = defaultdict(Counter)
        for (fault, phase), count in self.hits.items():
            faults[fault][phase] += count
        phases = sorted({phase for _, phase in self.hits})
        head = f"{self.runs} runs, {self.virtual_hours:.0f} virtual hours, {self.calls} API calls, "
        lines = [
            head + f"{self.hits.total()} faults, {self.crashes} crashes of the controller",
            "ends: " + ", ".join(f"{phase} {n}" for phase, n in sorted(self.ends.items())),
            (
                f"texts of diagnosis, card and verdict: {self.texts.total()} judged, by "
                f"{len(self.texts)} of {len(ROWS)} rows"
            ),
            "".join([f"{'fault':26}", *(f"{phase:>11}" for phase in phases)]),
        ]
        for fault in sorted(faults):
            counts = (f"{faults[fault][phase]:>11}" for phase in phases)
            lines.append("".join([f"{fault:26}", *counts]))
        return lines


TALLY = Tally()
"""What this process has simulated."""
