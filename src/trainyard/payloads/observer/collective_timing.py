"""Records when this process arrived at its last collectives, by the machine's clock.

Where there are many, it keeps a sample that is the same in every rank, so that the controller can
compare the ranks' arrivals at one and the same collective. Mounted into the user's image: standard
library, Python 3.8.
"""

from __future__ import annotations

import time
from typing import Any

from trainyard.payloads.observer import (
    collective_cadence,
    flight_recorders,
    process_sampling,
)

MOST_COLLECTIVES, MOST_GROUPS = 64, 4
"""Collectives of a group, and groups, in a report."""
KEPT_REPORTS = 3
"""For so many intervals between reports the collectives in one reach back, at least."""
_TOGETHER = ("all", "reduce_scatter", "barrier")
"""Operations in which every rank waits for every other; a broadcast's sender waits for nobody."""
_MIX, _BITS = 2654435761, 32


def _is_sampled(number: int, level: int) -> bool:
    """Whether a collective is among one of 2 ** level, in no order that a program might have. What
    is chosen at one level is at all lower ones."""
    return (number * _MIX % (1 << _BITS)) >> (_BITS - level) == 0


class GroupTimings:
    """The arrivals of one process group: number, time and seconds since the one before."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, float, float]] = []
        self.level = 0
        self._last, self._last_at = 0, 0.0

    def add(self, number: int, at: float, operation: str) -> bool:
        """Take in the next one; whether it is kept. Known ones come again, and change nothing."""
        if at <= self._last_at or number == self._last:
            return False
        if number < self._last:  # another group of that name
            self.kept.clear()
        gap = at - self._last_at if 0 < self._last < number else 0.0
        self._last, self._last_at = number, at
        chosen = gap > 0 and _is_sampled(number, self.level)
        is_kept = chosen and operation.lstrip("_").startswith(_TOGETHER)
        if is_kept:
            self.kept.append((number, at, gap))
        return is_kept

    def limit(self, seconds: float) -> None:
        """Keep few enough, which yet reach back for so long."""
        while len(self.kept) > MOST_COLLECTIVES:
            if self.kept[-1][1] - self.kept[-MOST_COLLECTIVES][1] >= seconds:
                del self.kept[:-MOST_COLLECTIVES]
            else:
                self.level += 1
                self.kept = [each for each in self.kept if _is_sampled(each[0], self.level)]
        if self.level and self.kept and self.kept[-1][1] - self.kept[0][1] > 4 * seconds:
            self.level -= 1


class CollectiveTimings:
    """Of all groups of this process."""

    def __init__(self) -> None:
        self.new_count = 0
        """How many are new since the last report."""
        self.cadence: list[float] = []
        """As `collective_cadence.cadence` has it."""
        self._groups: dict[str, GroupTimings] = {}
        self._again_at = 0.0
        self._machine = process_sampling.read_text("/proc/sys/kernel/random/boot_id").strip()

    def read_new(self, at: float, every: float, has_cadence: bool = False) -> None:
        """See what is new, unless that would cost too much now; `every`: between two reports."""
        if at < self._again_at:
            return
        began = time.thread_time()
        # The older ones have been seen before.
        entries = flight_recorders.last_entries(flight_recorders.MOST_BYTES)
        for each in entries:
            if each.get("is_p2p") or not each.get("time_created_ns"):
                continue
            group = self._groups.setdefault(flight_recorders.group_of(each), GroupTimings())
            name = str(each.get("profiling_name", "")).rpartition(":")[2]
            created = each["time_created_ns"] / 1e9
            self.new_count += group.add(int(each["collective_seq_id"]), created, name)
        for group in self._groups.values():
            group.limit(KEPT_REPORTS * every)
        if has_cadence:
            self.cadence = collective_cadence.cadence(entries)
        self._again_at = at + (time.thread_time() - began) / flight_recorders.CPU_SHARE

    def report(self) -> tuple[str, float, list[list[Any]]]:
        """The machine, its time now, and of each group the collectives: how many milliseconds ago,
        and how many after the one before."""
        self.new_count = 0
        now = time.time()
        found: list[list[Any]] = [
            [name, [[n, _ms(now - at), _ms(gap)] for n, at, gap in group.kept]]
            for name, group in self._groups.items()
            if group.kept
        ]
        found.sort(key=lambda each: -sum(arrival[2] for arrival in each[1]))
        return self._machine, now, found[:MOST_GROUPS]


def _ms(seconds: float) -> float:
    # The clock may have been set back.
    return round(max(seconds, 0.0) * 1e3, 1)
