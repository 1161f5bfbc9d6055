"""Shows what a job's wall time was spent on, as text and a bar."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.goodput.goodput_parts import GoodputPart, seconds_by_part
from trainyard.schema.times import duration, parse

_WIDTH = 40
_MARKS = {
    GoodputPart.QUEUED: ".",
    GoodputPart.STARTING: "s",
    GoodputPart.UNKNOWN: "?",
    GoodputPart.TRAINING: "=",
    GoodputPart.SAVING: "c",
    GoodputPart.LOST: "x",
    GoodputPart.HUNG: "h",
    GoodputPart.RESTARTING: "r",
    GoodputPart.PAUSED: "p",
}
"""The letter of each part in the bar."""


def goodput_text(status: Mapping[str, Any], now: datetime) -> str:
    """Return `85 % of 10m: 8m training, …` above a bar; "" when nothing is accounted for.

    Without any step that a replica has told, the share is unknown.
    """
    seconds = goodput_seconds(status, now)
    total = sum(seconds.values())
    if total <= 0:
        return ""
    parts = [f"{duration(value)} {part}" for part, value in seconds.items() if value >= 1]
    share = 100 * seconds.get(GoodputPart.TRAINING, 0.0) / total
    is_known = GoodputPart.TRAINING in seconds or GoodputPart.UNKNOWN not in seconds
    line = f"{f'{share:.0f} %' if is_known else 'unknown'} of {duration(total)}"
    line += f": {', '.join(parts)}" if parts else ""
    line += "" if is_known else "; no step was told"
    has_restarted = seconds.get(GoodputPart.RESTARTING, 0.0) > 0
    if has_restarted and GoodputPart.LOST not in seconds:
        line += "; what was lost is unknown"
    return f"{line}\n[{_bar(seconds, total)}]"


def goodput_seconds(status: Mapping[str, Any], now: datetime) -> dict[GoodputPart, float]:
    """Return seconds by part until `now`: what the status accounts for, and the current part."""
    goodput = status.get("goodput") or {}
    seconds = {GoodputPart(part): value for part, value in seconds_by_part(status)}
    since = parse(goodput.get("asOf"))
    if since is not None and goodput.get("state") in [part.value for part in GoodputPart]:
        state = GoodputPart(goodput["state"])
        seconds[state] = seconds.get(state, 0.0) + max((now - since).total_seconds(), 0.0)
    return {part: seconds[part] for part in GoodputPart if part in seconds}


def _bar(seconds: Mapping[GoodputPart, float], total: float) -> str:
    """Draw a letter for each fortieth of the time, in the order of the parts."""
    bar, passed = "", 0.0
    for part, value in seconds.items():
        passed += value
        bar = bar.ljust(round(_WIDTH * passed / total), _MARKS[part])
    return bar
