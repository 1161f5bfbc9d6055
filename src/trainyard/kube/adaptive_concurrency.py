"""How many requests at once a server bears: more while it answers in time, fewer when it does not.

Additive increase and multiplicative decrease, as TCP does it. What counts as slow is measured
against the server's own shortest answers: one that takes 2.5 s for each, however few there are,
gains nothing by being asked for less at once (decision 188).
"""

from __future__ import annotations

import asyncio
from collections import deque

_START = 32
_LEAST = 4
_COMFORTABLE_SECONDS = 0.5
"""Answers that take no longer are never taken for a sign of too many requests."""
_SLOW = 2.0
"""Times the shortest answer."""
_WINDOW_SECONDS = 30.0
"""The shortest answer is that of the last one or two windows."""
_SMOOTHING = 1 / 8
_PAUSE_SECONDS = 1.0
"""Between two decreases, so that the first one can be felt; or an answer's time, if longer."""
_QUIET_PART = 1 / 8


class Concurrency:
    """Slots for requests, `most` at most; those who wait get theirs in order."""

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._most = float(most)
        self._least = float(min(_LEAST, most))
        self.limit = float(min(_START, most))
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._quiet: list[asyncio.Future[None]] = []
        self._smooth = 0.0
        self._shortest = self._shortest_before = float("inf")
        self._window_ends = self._loop.time() + _WINDOW_SECONDS
        self._rests_until = 0.0

    async def acquire(self) -> None:
        """Wait for a slot; `release` gives it back."""
        if not self._waiting and self.under_way < int(self.limit):
            self.under_way += 1
            return
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has a slot, and will not use it
                self.release()
            raise

    def release(self) -> None:
        """A request is over."""
        self.under_way -= 1
        while self._waiting and self.under_way < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)
        if self._quiet and self._is_quiet():
            for each in self._quiet:
                if not each.done():
                    each.set_result(None)
            self._quiet.clear()

    def refused(self) -> None:
        """The server says that it is asked too much."""
        self._shrink(0.5)

    def answered(self, seconds: float) -> None:
        """A write was answered, after that long."""
        now = self._loop.time()
        if now >= self._window_ends:
            self._shortest_before, self._shortest = self._shortest, float("inf")
            self._window_ends = now + _WINDOW_SECONDS
        self._shortest = min(self._shortest, seconds)
        self._smooth += (seconds - self._smooth) * _SMOOTHING
        usual = min(self._shortest, self._shortest_before)
        if self._smooth > max(_COMFORTABLE_SECONDS, _SLOW * usual):
            self._shrink(0.75)
        elif self.under_way >= int(self.limit):
            self.limit = min(self._most, self.limit + 1 / self.limit)

    async def quiet(self, seconds: float) -> None:
        """Until few requests are under way, or for that long."""
        if self._is_quiet():
            return
        calm = self._loop.create_future()
        self._quiet.append(calm)
        await asyncio.wait([calm], timeout=seconds)
        calm.cancel()

    def _is_quiet(self) -> bool:
        return not self._waiting and self.under_way <= self.limit * _QUIET_PART

    def _shrink(self, factor: float) -> None:
        now = self._loop.time()
        if now >= self._rests_until:
            self.limit = max(self._least, self.limit * factor)
            self._rests_until = now + max(_PAUSE_SECONDS, self._smooth)
