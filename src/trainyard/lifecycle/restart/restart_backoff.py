"""How long a restart waits: twice as long after each failure in a row, up to a limit.

Decision 25: a long healthy run starts the delays anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainyard.kinds.shared.job_settings import Settings


def restart_delay(failures: int, settings: Settings, *, free: bool = False) -> timedelta:
    """Before the restart after the `failures`-th failure in a row, counted from 1.

    What was lost by no fault of its own comes back at once the first time.
    """
    if free and failures <= 1:
        return timedelta(0)
    return exponential_delay(settings.backoff_base_seconds, settings.backoff_max_seconds, failures)


def exponential_delay(base: float, most: float, count: int) -> timedelta:
    """`base` seconds the first time, twice as long each further time, but at most `most`."""
    return timedelta(seconds=min(base * 2.0 ** min(count - 1, 30), most))


def count_failure_in_row(
    before: int, healthy_since: datetime | None, now: datetime, settings: Settings
) -> int:
    """The number of this failure; a long healthy run before it starts the count anew."""
    return 1 if was_long_healthy_run(healthy_since, now, settings) else before + 1


def was_long_healthy_run(since: datetime | None, until: datetime, settings: Settings) -> bool:
    """Whether that was a long healthy run."""
    return since is not None and (until - since).total_seconds() >= settings.backoff_reset_seconds
