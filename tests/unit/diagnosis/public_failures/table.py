"""The hundred, by kind; `record.py` runs them, and what they ended as is kept in `recorded`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.diagnosis.public_failures import (
    checkpoints,
    data,
    environments,
    exceptions,
    hosts,
    kills,
    launchers,
    limits,
)
from tests.unit.diagnosis.public_failures.row import PublicFailure

FOLDER = Path(__file__).parent / "recorded"
TABLE: dict[str, tuple[PublicFailure, ...]] = {
    "exceptions": exceptions.ROWS,
    "environments": environments.ROWS,
    "launchers": launchers.ROWS,
    "limits": limits.ROWS,
    "kills": kills.ROWS,
    "hosts": hosts.ROWS,
    "data": data.ROWS,
    "checkpoints": checkpoints.ROWS,
}


def recorded(kind: str) -> dict[str, Any]:
    """The ends of one kind, by name: job, pods, events and logs, as `record.py` found them."""
    file = FOLDER / f"{kind}.json"
    return json.loads(file.read_text()) if file.exists() else {}
