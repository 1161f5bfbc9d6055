"""How quick the machine is just now: what a bare interpreter takes to start and to end.

Goals in seconds were set where that takes ten milliseconds. The same machine may be half as quick
an hour later, so what has such a goal is measured in turn with bare starts, and told as so many of
them (decision 353).
"""

from __future__ import annotations

import subprocess
import sys
import time

_THERE_SECONDS = 0.01


def bare_start() -> float:
    """Seconds from a bare interpreter's start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - started


def starts(seconds: float) -> float:
    """A goal that was set in seconds, in starts."""
    return seconds / _THERE_SECONDS
