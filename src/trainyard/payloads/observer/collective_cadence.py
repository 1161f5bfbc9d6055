"""How often the same collectives repeat: the progress of a training that reports none.

Whether one repetition is a step cannot be known from here: with a loss that is summed up every ten
steps the collectives are those of one step of ten parts. Mounted into the user's image: standard
library, Python 3.8.
"""

from __future__ import annotations

from typing import Any, Hashable, Sequence  # noqa: UP035 (Python 3.8)

FEWEST, REPEATS = 16, 4
"""So many collectives, and so many times the same ones, are the least to tell of."""
LATEST = 16
"""Of so many of the last times it is told how long they took."""


def cadence(entries: Sequence[dict[str, Any]]) -> list[float]:
    """How many collectives there are that come again and again, and the seconds from one time to
    the next, in the median; nothing of those of which that is not so. `entries`: of torch's flight
    recorder, the oldest first."""
    length, run = find_period([_signature(each) for each in entries])
    if not length:
        return []
    last = entries[-run:][::-length][: LATEST + 1]
    ends = [int(each.get("time_created_ns") or 0) for each in last]
    gaps = sorted(ends[n] - ends[n + 1] for n in range(len(ends) - 1))
    seconds = gaps[len(gaps) // 2] / 1e9
    return [length, round(seconds, 6)] if seconds > 0 else []


def find_period(marks: Sequence[Hashable]) -> tuple[int, int]:
    """The fewest marks of which the last ones are repetitions, and of how many that is so: of as
    many as possible, and of half of them at least; (0, 0) where there are none."""
    back = marks[::-1]
    # Of each beginning, the longest that is its end too (Knuth, Morris and Pratt): by as much as it
    # is shorter, the beginning repeats itself.
    same = [0] * len(back)
    for end in range(1, len(back)):
        size = same[end - 1]
        while size and back[end] != back[size]:
            size = same[size - 1]
        same[end] = size + (back[end] == back[size])
    for run in range(len(back), max(FEWEST, (len(back) + 1) // 2) - 1, -1):
        length = run - same[run - 1]
        if length * REPEATS <= run:
            return length, run
    return 0, 0


def _signature(entry: dict[str, Any]) -> Hashable:
    """What makes a collective the same as another one."""
    group = str(entry.get("process_group"))
    return group, entry.get("profiling_name"), str(entry.get("input_sizes"))
