"""Garbage collection, which commands do without while they import."""

from __future__ import annotations

import gc

_AFTER = (20_000, 20, 20)
"""New objects before a collection: a pass over a job makes hundreds, and Python's own 700 means a
collection for each pod or two, a tenth of the time of an operator that creates them."""


# Decision 186.
def collect_garbage_again() -> None:
    """What was imported is there to stay: no collection needs to look at it."""
    gc.freeze()
    gc.set_threshold(*_AFTER)
    gc.enable()
