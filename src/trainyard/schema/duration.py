"""Durations of a Queue's ``maxDuration``: ``y w d h m s ms``, largest first, e.g. ``1d12h``."""

from __future__ import annotations

import re
from datetime import timedelta

from trainyard.schema.errors import InvalidDuration

_PART = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?\Z", re.ASCII
)
_SECONDS = (365 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


def parse(text: str) -> timedelta:
    """The duration; raises InvalidDuration. A year has 365 days."""
    match = _PART.match(text)
    if match is None or not any(match.groups()) or len(text) > 64:
        raise InvalidDuration(
            f"'{text[:64]}' is not a duration; write y, w, d, h, m, s and ms in this order, "
            "e.g. 1d12h or 30m"
        )
    parts = zip(match.groups(), _SECONDS, strict=True)
    try:
        return timedelta(seconds=sum(int(number) * unit for number, unit in parts if number))
    except OverflowError:
        raise InvalidDuration(f"'{text[:64]}' is longer than any duration can be") from None
