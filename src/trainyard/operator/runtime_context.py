"""What a controller gets from the process that it runs in: clock, randomness, log, channel."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime

from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.reconcile.reconcile_log import ReconcileLog
from trainyard.schema.dataclass import dataclass

Clock = Callable[[], datetime]
STEP_SECONDS = 1.0
"""By which a clock was set; less is its own correction, and what reading it takes."""


def wall_clock() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


def wall_clock_offset() -> float:
    """By how many seconds the time of day is ahead of a clock that only goes on.

    That one stands still while a laptop sleeps.
    """
    while True:
        before = time.monotonic()
        offset = time.time() - before
        if time.monotonic() - before < STEP_SECONDS / 10:  # not interrupted in between
            return offset


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """The dependencies of a controller on its process; tests replace them."""

    now: Clock = wall_clock
    rng: random.Random = field(default_factory=random.Random)
    """Spreads reconnects; tests seed it."""
    instrumentation: Instrumentation = field(default_factory=Instrumentation)
    """Its hooks are called for what the controller does."""
    flushes_events: bool = True
    """Send waiting events when cancelled. A controller that lost its Lease must not do so."""
    reconcile_log: ReconcileLog | None = None
    clock_offset: Callable[[], float] = lambda: 0.0
    """By how many seconds `now` is ahead of a clock that only goes on, but for a constant."""
    channel: ReportChannel | None = None
    """Where pods report; jobs' Secrets contain its CA and their tokens."""
