"""A delayed work queue: one reconcile per key at a time, many keys at once, timely wake-ups.

Delays come in two kinds. Retries wait on the loop's monotonic clock. Wake-ups (deadlines, restart
delays, TTL) are moments of the wall clock, and are compared with it at least every few seconds,
because the monotonic clock stands still while a laptop sleeps and the wall clock may be set: then
all are reconciled, and may set other ones.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Generic, TypeVar

from trainyard.operator.runtime_context import STEP_SECONDS
from trainyard.schema.dataclass import dataclass

K = TypeVar("K", bound=Hashable)

_WALL_CLOCK_CHECK_SECONDS = 5.0
_MIN_ALARMS_TO_PRUNE = 1000
"""With fewer, it is not worth looking for wake-ups that were replaced."""


@dataclass(slots=True)
class _Entry:
    """The state of one key."""

    queued: bool = False
    active: bool = False
    dirty: bool = False
    forgotten: bool = False
    failures: int = 0
    rest_until: float = 0.0
    due: float | None = None
    wakeup: datetime | None = None


class WorkQueue(Generic[K]):
    """Keys that need a reconcile.

    A key added while its reconcile runs gets another one afterwards, however often it was added.
    `now` is the wall clock, `clock_offset` by how much it is ahead of one that only goes on, but
    for a constant. `run` must be running for anything delayed to come due.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        clock_offset: Callable[[], float] = lambda: 0.0,
        retry_min_seconds: float = 0.2,
        retry_max_seconds: float = 60.0,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`waited` is called with the seconds for which each due key waited for its reconcile."""
        self._now = now
        self._clock_offset = clock_offset
        self._known_offset = clock_offset()
        self._retry_min = retry_min_seconds
        self._retry_max = retry_max_seconds
        self._entries: dict[K, _Entry] = {}
        self._ready: deque[K] = deque()
        self._is_ready = asyncio.Semaphore(0)
        self._waited = waited
        self._ready_since: dict[K, float] = {}
        """Since when each ready key is ready, oldest first."""
        self._due: list[tuple[float, int, K]] = []
        self._wakeups: list[tuple[datetime, int, K]] = []
        self._serial = 0
        self._rescheduled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def oldest_seconds(self) -> float:
        """Seconds for which the oldest ready key has waited; 0 if none is ready."""
        now = self._loop.time()
        return now - next(iter(self._ready_since.values()), now)

    def add(self, key: K) -> None:
        """Reconcile `key` as soon as its rest after the last reconcile is over."""
        entry = self._entries.setdefault(key, _Entry())
        entry.forgotten = False
        if entry.active:
            entry.dirty = True
        elif not entry.queued:
            if self._loop.time() < entry.rest_until:
                self._schedule(key, entry, entry.rest_until)
            else:
                entry.queued = True
                entry.due = None
                self._ready_since[key] = self._loop.time()
                self._ready.append(key)
                self._is_ready.release()

    def retry(self, key: K) -> float:
        """Reconcile `key` again after an error; returns the delay in seconds, doubled each time."""
        entry = self._entries.setdefault(key, _Entry())
        delay = min(self._retry_max, self._retry_min * 2.0**entry.failures)
        entry.failures = min(entry.failures + 1, 30)
        self._schedule(key, entry, self._loop.time() + delay)
        return delay

    def reset_backoff(self, key: K) -> None:
        """Have the next error of `key` start with the shortest delay again."""
        if key in self._entries:
            self._entries[key].failures = 0

    def set_wakeup(self, key: K, when: datetime | None) -> None:
        """Reconcile `key` at `when`, in place of the wake-up set before; None: no wake-up."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.wakeup == when:
            return
        entry.wakeup = when
        if when is not None:
            self._prune_wakeups()
            self._serial += 1
            heapq.heappush(self._wakeups, (when, self._serial, key))
            self._rescheduled.set()

    def forget(self, key: K) -> None:
        """Drop everything that is delayed for `key`: its object is gone."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.active or entry.queued:
            entry.due = entry.wakeup = None
            entry.forgotten = True  # once its reconcile is over
        else:
            del self._entries[key]

    async def get(self) -> K:
        """The next ready key; the caller must call `done` after its reconcile."""
        await self._is_ready.acquire()
        key = self._ready.popleft()
        self._waited(self._loop.time() - self._ready_since.pop(key))
        entry = self._entries[key]
        entry.queued = False
        entry.active = True
        return key

    def done(self, key: K, *, rest_seconds: float = 0.0) -> None:
        """The reconcile of `key` is over; it rests for `rest_seconds`, even if it is added."""
        entry = self._entries[key]
        entry.active = False
        entry.rest_until = self._loop.time() + rest_seconds
        if entry.dirty:
            entry.dirty = False
            self.add(key)
        elif entry.forgotten:
            del self._entries[key]

    async def run(self) -> None:
        """Make delayed keys ready when they come due; runs until cancelled."""
        while True:
            self._rescheduled.clear()
            wait = min(self._release_due(), self._release_wakeups())
            try:
                async with asyncio.timeout(wait):
                    await self._rescheduled.wait()
            except TimeoutError:
                pass

    def _schedule(self, key: K, entry: _Entry, due: float) -> None:
        if entry.due is not None and entry.due <= due:
            return
        entry.due = due
        self._serial += 1
        heapq.heappush(self._due, (due, self._serial, key))
        self._rescheduled.set()

    def _prune_wakeups(self) -> None:
        """Drop replaced wake-ups, such as deadlines of days of jobs that ended early."""
        if len(self._wakeups) < _MIN_ALARMS_TO_PRUNE + 2 * len(self._entries):
            return
        self._wakeups = [wakeup for wakeup in self._wakeups if self._is_set(*wakeup)]
        heapq.heapify(self._wakeups)

    def _is_set(self, when: datetime, serial: int, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.wakeup == when

    def _release_due(self) -> float:
        """Make retries ready that are due; returns the seconds until the next."""
        now = self._loop.time()
        while self._due:
            due, _, key = self._due[0]
            entry = self._entries.get(key)
            if entry is None or entry.due != due:
                heapq.heappop(self._due)  # rescheduled or forgotten since
            elif due > now:
                return due - now
            else:
                heapq.heappop(self._due)
                entry.due = None
                entry.rest_until = 0.0
                self.add(key)
        return 3600.0

    def _release_wakeups(self) -> float:
        """Make wake-ups ready that are due by the wall clock, or all once it was set.

        Returns the seconds until the next.
        """
        now, offset = self._now(), self._clock_offset()
        was_set = abs(offset - self._known_offset) >= STEP_SECONDS
        if was_set:
            self._known_offset = offset
        while self._wakeups:
            when, serial, key = self._wakeups[0]
            if not self._is_set(when, serial, key):
                heapq.heappop(self._wakeups)
            elif when > now and not was_set:
                return min((when - now).total_seconds(), _WALL_CLOCK_CHECK_SECONDS)
            else:
                heapq.heappop(self._wakeups)
                entry = self._entries[key]
                entry.wakeup = None
                entry.rest_until = 0.0  # a deadline does not wait for a rest to be over
                self.add(key)
        return 3600.0
