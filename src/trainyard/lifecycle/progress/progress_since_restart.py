"""How far a job had got, by what its replicas tell: the last checkpoint, or else the last step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.lifecycle.pod_reports import PRINTED
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """The highest step that was told, and that of the last checkpoint; None where nothing tells."""

    step: int | None = None
    checkpoint: int | None = None

    @classmethod
    def from_progress(cls, progress: Mapping[str, Any] | None) -> TrainingPosition:
        """From `status.progress`; what others wrote there and is no number was never told, and what
        a program prints is too weak to end a job for."""
        fields = progress if isinstance(progress, Mapping) else {}
        if fields.get("source") == PRINTED:
            return cls()
        made = fields.get("checkpoint")
        saved = made.get("step") if isinstance(made, Mapping) else None
        return cls(_int_or_none(fields.get("step")), _int_or_none(saved))

    @classmethod
    def decode(cls, obj: Mapping[str, Any] | None) -> TrainingPosition:
        """From `status.internal`."""
        return cls((obj or {}).get("step"), (obj or {}).get("checkpoint"))

    def encode(self) -> dict[str, Any]:
        """For `status.internal`."""
        values = {"step": self.step, "checkpoint": self.checkpoint}
        return {name: value for name, value in values.items() if value is not None}

    def is_further_than(self, before: TrainingPosition) -> bool | None:
        """Whether it is further: by checkpoints, where there were any, since what is not saved is
        done again. None where nothing tells."""
        if self.checkpoint is not None:
            return before.checkpoint is None or self.checkpoint > before.checkpoint
        if self.step is None:
            return None
        return before.step is None or self.step > before.step


def _int_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None
