"""Times of the Kubernetes API, and durations as people read them.

``metav1.Time`` has whole seconds, ``metav1.MicroTime`` six digits more; both are RFC 3339 in UTC.
Ours are written with microseconds only where there are any, so that short lives can be ordered.
"""

from __future__ import annotations

import functools
import re
import time
from datetime import UTC, datetime

_SECONDS = "%Y-%m-%dT%H:%M:%SZ"


_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)\Z")


def parse(text: str | None) -> datetime | None:
    """An RFC 3339 text as an aware time; None for an absent or empty one.

    Raises ValueError. A time without a zone is taken for UTC.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_time(text: str) -> bool:
    """Whether it is an RFC 3339 text, with a zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def is_micro_time(text: str) -> bool:
    """Whether it is an RFC 3339 text with six decimals, as Go reads ``metav1.MicroTime``."""
    return _MICRO.match(text) is not None and is_time(text)


def render(moment: datetime) -> str:
    """To the second, or with microseconds where there are any: `2024-08-02T07:03:59Z`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def render_micro(moment: datetime) -> str:
    """With microseconds in any case, as ``metav1.MicroTime``."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def unix(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 text, to the second."""
    return datetime.fromisoformat(text).replace(microsecond=0).timestamp()


def from_unix(seconds: float) -> str:
    """Seconds since 1970 as ``metav1.Time``."""
    return _to_the_second(int(seconds // 1))


@functools.lru_cache(maxsize=256)
def _to_the_second(seconds: int) -> str:
    """Cached, as the statuses of pods repeat few times often."""
    return time.strftime(_SECONDS, time.gmtime(seconds))


def from_nanoseconds(nanoseconds: int) -> str:
    """Nanoseconds since 1970 with microseconds: restarts of peers are ordered by these times."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{from_unix(seconds)[:-1]}.{rest // 1000:06d}Z"


def nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 text."""
    return int(datetime.fromisoformat(text).timestamp() * 1e9)


def earliest(*moments: datetime | None) -> datetime | None:
    """The first of several times, of which any may be None; None if all are."""
    return min((moment for moment in moments if moment is not None), default=None)


def age(text: str | None, now: datetime) -> str:
    """The age of an object that was created at a time: `5m3s`, `2d4h`."""
    moment = parse(text)
    if moment is None:
        return "<unknown>"
    return duration((now - moment).total_seconds())


def span(start: str | None, end: str | None, now: datetime) -> str:
    """The duration from start to end, or to `now` if there is no end: `0.4s`, `12s`, `5m3s`."""
    began = parse(start)
    if began is None:
        return ""
    seconds = ((parse(end) or now) - began).total_seconds()
    return f"{max(seconds, 0):.1f}s" if seconds < 10 else duration(seconds)


def duration(elapsed: float) -> str:
    """Seconds as text, like `duration.HumanDuration` of apimachinery: `5m3s`, `2d4h`."""
    seconds = int(elapsed)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    rest = days % 365
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"
