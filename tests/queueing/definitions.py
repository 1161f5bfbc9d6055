"""The definitions that schedulers publish; `published/README.md` names their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PUBLISHED = Path(__file__).parent / "published"


def published(scheduler: str) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of one: `kueue`, `volcano`, `scheduler-plugins`."""
    return [json.loads(path.read_bytes()) for path in sorted(PUBLISHED.glob(f"{scheduler}-*.json"))]


def schema_of(plural: str, scheduler: str) -> dict[str, Any]:
    """The schema of one resource."""
    (found,) = [
        version["schema"]["openAPIV3Schema"]
        for each in published(scheduler)
        for version in each["spec"]["versions"]
        if each["spec"]["names"]["plural"] == plural
    ]
    return dict(found)
