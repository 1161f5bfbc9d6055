"""A delayed work queue: one pass per key at a time, many keys at once, wake-ups that fire on time.

Delays come in two kinds. Retries wait on the loop's monotonic clock. Wake-ups (deadlines, restart
delays, TTL) are moments of the wall clock, and are compared with it at least every few seconds,
because the monotonic clock stands still while a laptop sleeps and the wall clock may be set.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Generic, TypeVar

from trainyard.schema.dataclass import dataclass

K = TypeVar("K", bound=Hashable)

_WALL_CLOCK_CHECK_SECONDS = 5.0
_FEW_ALARMS = 1000
"""Not worth a look for those that were replaced."""


@dataclass(slots=True)
class _Entry:
    """What is known of one key."""

    queued: bool = False
    active: bool = False
    again: bool = False
    forgotten: bool = False
    failures: int = 0
    rest_until: float = 0.0
    due: float | None = None
    alarm: datetime | None = None


class WorkQueue(Generic[K]):
    """Keys that need a pass.

    A key added while its pass runs gets another pass afterwards; added many times, one. `now` is
    the wall clock. `run` must be running for anything delayed to come due.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        retry_min_seconds: float = 0.2,
        retry_max_seconds: float = 60.0,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`waited` is told how long each key that was due waited for its pass."""
        self._now = now
        self._retry_min = retry_min_seconds
        self._retry_max = retry_max_seconds
        self._entries: dict[K, _Entry] = {}
        self._ready: deque[K] = deque()
        self._is_ready = asyncio.Semaphore(0)
        self._waited = waited
        self._ready_since: dict[K, float] = {}
        """Those that are ready, in the order in which they became so."""
        self._due: list[tuple[float, int, K]] = []
        self._alarms: list[tuple[datetime, int, K]] = []
        self._serial = 0
        self._rescheduled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def oldest_seconds(self) -> float:
        """For how long the key has waited that has been due the longest; 0 if none is."""
        now = self._loop.time()
        return now - next(iter(self._ready_since.values()), now)

    def add(self, key: K) -> None:
        """Have a pass for `key`, as soon as its rest after the last pass is over."""
        entry = self._entries.setdefault(key, _Entry())
        entry.forgotten = False
        if entry.active:
            entry.again = True
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
        """Have a pass for `key` after an error; the delay in seconds doubles each time."""
        entry = self._entries.setdefault(key, _Entry())
        delay = min(self._retry_max, self._retry_min * 2.0**entry.failures)
        entry.failures = min(entry.failures + 1, 30)
        self._schedule(key, entry, self._loop.time() + delay)
        return delay

    def succeeded(self, key: K) -> None:
        """The next error of `key` starts with the shortest delay again."""
        if key in self._entries:
            self._entries[key].failures = 0

    def wake_at(self, key: K, when: datetime | None) -> None:
        """Have a pass for `key` at `when`, in place of the wake-up set before."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.alarm == when:
            return
        entry.alarm = when
        if when is not None:
            self._drop_void_alarms()
            self._serial += 1
            heapq.heappush(self._alarms, (when, self._serial, key))
            self._rescheduled.set()

    def forget(self, key: K) -> None:
        """Drop everything that is delayed for `key`: its object is gone."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.active or entry.queued:
            entry.due = entry.alarm = None
            entry.forgotten = True  # once its pass is over
        else:
            del self._entries[key]

    async def get(self) -> K:
        """The next key that is due; the caller must call `done` after its pass."""
        await self._is_ready.acquire()
        key = self._ready.popleft()
        self._waited(self._loop.time() - self._ready_since.pop(key))
        entry = self._entries[key]
        entry.queued = False
        entry.active = True
        return key

    def done(self, key: K, *, rest_seconds: float = 0.0) -> None:
        """The pass of `key` is over; leave it alone for `rest_seconds`, whatever comes in."""
        entry = self._entries[key]
        entry.active = False
        entry.rest_until = self._loop.time() + rest_seconds
        if entry.again:
            entry.again = False
            self.add(key)
        elif entry.forgotten:
            del self._entries[key]

    async def run(self) -> None:
        """Move keys whose time has come to the ready ones, for ever."""
        while True:
            self._rescheduled.clear()
            wait = min(self._release_due(), self._release_alarms())
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

    def _drop_void_alarms(self) -> None:
        """Deadlines of jobs that ended early would be kept for as long as those had allowed."""
        if len(self._alarms) < _FEW_ALARMS + 2 * len(self._entries):
            return
        self._alarms = [alarm for alarm in self._alarms if self._is_set(*alarm)]
        heapq.heapify(self._alarms)

    def _is_set(self, when: datetime, serial: int, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.alarm == when

    def _release_due(self) -> float:
        """Release what is due; the seconds until the next."""
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

    def _release_alarms(self) -> float:
        """Wake what is due by the wall clock; the seconds after which to look again."""
        now = self._now()
        while self._alarms:
            when, serial, key = self._alarms[0]
            if not self._is_set(when, serial, key):
                heapq.heappop(self._alarms)
            elif when > now:
                return min((when - now).total_seconds(), _WALL_CLOCK_CHECK_SECONDS)
            else:
                heapq.heappop(self._alarms)
                entry = self._entries[key]
                entry.alarm = None
                entry.rest_until = 0.0  # a deadline does not wait for a rest to be over
                self.add(key)
        return 3600.0
