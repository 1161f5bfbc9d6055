"""Garbage collection, which commands do without while they import."""

from __future__ import annotations

import gc


def collect_garbage_again() -> None:
    """What was imported is there to stay: no collection needs to look at it."""
    gc.freeze()
    gc.enable()
