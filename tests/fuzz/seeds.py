"""How much is tried: the same seeds each time, and some that nobody has tried yet."""

from __future__ import annotations

from collections.abc import Sequence

from tests.new_seeds import IS_SOAK

_SHARE = 1 if IS_SOAK else 10
BATCH = 200
"""Requests, or manifests, of one seed."""
CHUNK = 20
"""Seeds of one test."""
API_REQUESTS = 200_000 // _SHARE
LIVE_REQUESTS = 20_000 // _SHARE
MANIFESTS = 100_000 // _SHARE
MESSAGES = 20_000 // _SHARE
"""To the shim, and as many to each channel."""


def chosen(inputs: int, first_new: int, portion: int = CHUNK) -> list[Sequence[int]]:
    """The seeds for that many inputs, in portions: four of five are the same each time."""
    count = inputs // BATCH
    new = count // 5
    fixed, fresh = range(count - new), range(first_new, first_new + new)
    return [
        seeds[start : start + portion]
        for seeds in (fixed, fresh)
        for start in range(0, len(seeds), portion)
    ]
