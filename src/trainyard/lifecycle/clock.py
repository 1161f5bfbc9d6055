"""The earliest of several moments at which to look again."""

from __future__ import annotations

from datetime import datetime


def earliest(*moments: datetime | None) -> datetime | None:
    """None where there is none."""
    return min((moment for moment in moments if moment is not None), default=None)
