"""What time it is, as the API server and those beside it write it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from trainyard.schema import times


def now_text() -> str:
    """Now, as ``metav1.Time``."""
    return times.from_unix(time.time())


def age(text: str | None) -> str:
    """How long ago a time of an object was."""
    return times.age(text, datetime.now(UTC))
