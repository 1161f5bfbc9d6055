"""Python's garbage collection, which is off while modules are imported."""

from __future__ import annotations

import gc

_THRESHOLDS = (20_000, 20, 20)
"""New objects before a collection. One reconcile makes hundreds; with Python's own 700 an operator
that creates pods spends a tenth of its time collecting."""


def collect_garbage_again() -> None:
    """Turn collection on again. What is imported by now stays, so no collection looks at it
    (decision 186)."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
