"""How quick the machine is just now: what a bare interpreter takes to start and to end.

The same machine may be half as quick an hour later, so what has a budget is measured in turn with
bare starts, and given as so many of them (decision 353).
"""

from __future__ import annotations

import subprocess
import sys
import time

_BUDGET = 1.15
"""Simpler code may cost so much of what a release took before; never more."""


def bare_start() -> float:
    """Seconds from a bare interpreter's start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - started


def budget(before: float) -> float:
    """The most that something may take which took `before`, in the same unit."""
    return before * _BUDGET


def least(before: float) -> float:
    """The lowest rate that something may have which had `before`, in the same unit."""
    return before / _BUDGET
