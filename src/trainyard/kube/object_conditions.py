"""Conditions of any object's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def find_condition(status: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
    """The condition of that type; empty where there is none."""
    conditions = (status or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})
