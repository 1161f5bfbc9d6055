"""What a controller gets from the process that it runs in: clock, randomness, log, channel."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime

from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.reconcile.reconcile_log import ReconcileLog
from trainyard.schema.dataclass import dataclass

Clock = Callable[[], datetime]


def wall_clock() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


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
    channel: ReportChannel | None = None
    """Where pods report; jobs' Secrets contain its CA and their tokens."""
