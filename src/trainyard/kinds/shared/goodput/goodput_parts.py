"""The parts of a job's wall time in `status.goodput`.

The models of the status are elsewhere, so that readers of a status need not import pydantic.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class GoodputPart(StrEnum):
    """What time is spent on, in the order of reports."""

    QUEUED = "queued"
    STARTING = "starting"
    UNKNOWN = "unknown"
    TRAINING = "training"
    SAVING = "saving"
    LOST = "lost"
    HUNG = "hung"
    RESTARTING = "restarting"
    PAUSED = "paused"


def seconds_by_part(status: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    """Parts and seconds of a status. Values that are no numbers are left out."""
    goodput = (status or {}).get("goodput") or {}
    for part in GoodputPart:
        if isinstance(value := goodput.get(part.value), int | float) and value >= 0:
            yield part.value, float(value)
