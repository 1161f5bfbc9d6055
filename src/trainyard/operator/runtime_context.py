"""What a controller is given by the process that it runs in."""

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
    """A clock, and who is told of what."""

    now: Clock = wall_clock
    rng: random.Random = field(default_factory=random.Random)
    """Spreads reconnects; may be seeded."""
    instrumentation: Instrumentation = field(default_factory=Instrumentation)
    """Told of what is done, while it is done."""
    flushes_events: bool = True
    """Send the last events when cancelled, which one that has lost its lease must not do."""
    reconcile_log: ReconcileLog | None = None
    channel: ReportChannel | None = None
    """Where pods report; its jobs' Secrets hold what it trusts."""
