"""Kubernetes timestamps (RFC 3339, UTC) to and from `datetime`."""

from __future__ import annotations

from datetime import UTC, datetime


def parse(text: str | None) -> datetime | None:
    """None for an absent or empty timestamp."""
    return datetime.fromisoformat(text) if text else None


def render(moment: datetime) -> str:
    """To the second, or with microseconds where there are any: `2024-08-02T07:03:59Z`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
