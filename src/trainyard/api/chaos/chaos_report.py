"""What became of a job under faults, and of the same job without."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from trainyard.schema.dataclass import dataclass

SUCCEEDED = "Succeeded"


@dataclass(slots=True)
class Struck:
    """A fault that was done."""

    at: float
    """Seconds since the job was submitted."""
    fault: str
    target: str = ""
    """The replica, with its rank, or the process."""
    seconds: float = 0.0
    """How long it lasted, where it does not end by itself at once."""
    seen: list[str] = field(default_factory=list)
    """What the cluster told between this fault and the next one."""
    recovered: float | None = None
    """Seconds until all replicas ran again, where they did not run meanwhile."""


@dataclass(slots=True)
class ChaosResult:
    """How a run ended."""

    phase: str
    seconds: float
    """From submission to the end."""
    restarts: int = 0
    message: str = ""
    """Why it failed, or did not end."""
    goodput: dict[str, float] = field(default_factory=dict)
    """Seconds by what they were spent on, as the job's status has them."""
    files: dict[str, str] = field(default_factory=dict)
    """Digests of what was asked for; empty of what is not there."""
    step: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    """As reported last."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ChaosResult:
        """From the `baseline` of a report in JSON; raises TypeError."""
        return cls(**fields)

    @property
    def share(self) -> float | None:
        """Of all its time, what was spent on training that was not lost; None where no step was
        told."""
        if "unknown" in self.goodput and "training" not in self.goodput:
            return None
        total = sum(self.goodput.values())
        return self.goodput.get("training", 0.0) / total if total else None


@dataclass(slots=True)
class Report:
    """A run under faults beside one without."""

    job: str
    seed: int
    every: float
    """Seconds between two faults, on average."""
    faults: list[str]
    """Those that were to be done."""
    baseline: ChaosResult
    under_faults: ChaosResult
    struck: list[Struck]
    notes: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Time to the end, with faults by without."""
        return self.under_faults.seconds / max(self.baseline.seconds, 1e-9)

    @property
    def differences(self) -> list[str]:
        """In what the results are not the same."""
        before, after = self.baseline, self.under_faults
        found = []
        if before.phase != after.phase:
            why = f" ({after.message})" if after.message else ""
            found.append(f"{after.phase} instead of {before.phase}{why}")
        for path, digest in after.files.items():
            if before.files.get(path) != digest:
                found.append(f"{path} is {_there(digest)}, was {_there(before.files.get(path))}")
        return found

    @property
    def other_metrics(self) -> list[str]:
        """What was reported last and differs; floating point sums may differ by themselves."""
        before, after = self.baseline, self.under_faults
        values: list[tuple[str, Any, Any]] = [("step", before.step, after.step)]
        names = sorted({*before.metrics, *after.metrics})
        values += [(name, before.metrics.get(name), after.metrics.get(name)) for name in names]
        return [f"{name} {new} (was {old})" for name, old, new in values if old != new]

    def content(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **asdict(self),
            "ratio": self.ratio,
            "same": not self.differences,
            "differences": self.differences,
            "otherMetrics": self.other_metrics,
        }


def _there(digest: str | None) -> str:
    return digest[:12] if digest else "not there"


def digests(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """SHA-256 of each file, by what it is called; "" where there is none."""
    found = {}
    for name, path in files:
        try:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            found[name] = ""
    return found
