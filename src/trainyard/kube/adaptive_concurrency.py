"""Adapts the number of concurrent requests to the server: more while it is fast, fewer when not.

Additive increase and multiplicative decrease, as TCP does it. What counts as slow is measured
against the server's own shortest answers: a server that takes 2.5 s for every request, however few
there are, gains nothing from fewer requests at once (decision 188).
"""

from __future__ import annotations

import asyncio
from collections import deque

_INITIAL_SLOTS = 32
_MIN_SLOTS = 4
_COMFORTABLE_SECONDS = 0.5
"""Answers within this time never count as slow."""
_SLOW_FACTOR = 2.0
"""Answers that take this many times the shortest one are slow."""
_WINDOW_SECONDS = 30.0
"""The shortest answer is that of the last one or two windows."""
_SMOOTHING = 1 / 8
_DECREASE_INTERVAL_SECONDS = 1.0
"""Between two decreases, so that the first can take effect; or an answer's time, if longer."""
_QUIET_SHARE = 1 / 8
"""The server is quiet while at most this share of the slots is in use."""


class AdaptiveConcurrency:
    """Slots for requests, `max_slots` at most; waiters get theirs in order."""

    def __init__(self, max_slots: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._max = float(max_slots)
        self._min = float(min(_MIN_SLOTS, max_slots))
        self.limit = float(min(_INITIAL_SLOTS, max_slots))
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._quiet_waiters: list[asyncio.Future[None]] = []
        self._smoothed_seconds = 0.0
        self._shortest = self._shortest_before = float("inf")
        self._window_ends = self._loop.time() + _WINDOW_SECONDS
        self._no_decrease_until = 0.0

    async def acquire(self) -> None:
        """Wait for a slot; `release` gives it back."""
        if not self._waiting and self.in_flight < int(self.limit):
            self.in_flight += 1
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
        """Give back a slot."""
        self.in_flight -= 1
        while self._waiting and self.in_flight < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        if self._quiet_waiters and self._is_quiet():
            for each in self._quiet_waiters:
                if not each.done():
                    each.set_result(None)
            self._quiet_waiters.clear()

    def on_refusal(self) -> None:
        """The server refused a request because there are too many."""
        self._shrink(0.5)

    def on_answer(self, seconds: float) -> None:
        """A write was answered after so many seconds."""
        now = self._loop.time()
        if now >= self._window_ends:
            self._shortest_before, self._shortest = self._shortest, float("inf")
            self._window_ends = now + _WINDOW_SECONDS
        self._shortest = min(self._shortest, seconds)
        self._smoothed_seconds += (seconds - self._smoothed_seconds) * _SMOOTHING
        usual = min(self._shortest, self._shortest_before)
        if self._smoothed_seconds > max(_COMFORTABLE_SECONDS, _SLOW_FACTOR * usual):
            self._shrink(0.75)
        elif self.in_flight >= int(self.limit):
            self.limit = min(self._max, self.limit + 1 / self.limit)

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until few requests are in flight, at most for so many seconds."""
        if self._is_quiet():
            return
        calm = self._loop.create_future()
        self._quiet_waiters.append(calm)
        await asyncio.wait([calm], timeout=seconds)
        calm.cancel()

    def _is_quiet(self) -> bool:
        return not self._waiting and self.in_flight <= self.limit * _QUIET_SHARE

    def _shrink(self, factor: float) -> None:
        now = self._loop.time()
        if now >= self._no_decrease_until:
            self.limit = max(self._min, self.limit * factor)
            self._no_decrease_until = now + max(_DECREASE_INTERVAL_SECONDS, self._smoothed_seconds)
