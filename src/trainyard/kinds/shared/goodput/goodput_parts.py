"""`status.goodput`: what a job's wall time was spent on."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class GoodputPart(StrEnum):
    """What time is spent on, in the order in which it is told."""

    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    LOST = "lost"
    HUNG = "hung"
    RESTARTING = "restarting"
    PAUSED = "paused"


def seconds_by_part(status: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    """What a status accounts for; what others wrote there and is no number is left out."""
    told = (status or {}).get("goodput") or {}
    for part in GoodputPart:
        if isinstance(value := told.get(part.value), int | float) and value >= 0:
            yield part.value, float(value)
