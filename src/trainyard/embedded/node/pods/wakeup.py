"""Waiting for news, but not for ever."""

from __future__ import annotations

import asyncio
import contextlib


class WakeUp(asyncio.Event):
    """Set when there is something new to look at."""

    async def wait_at_most(self, seconds: float | None) -> None:
        """Wait for it, or so long; None: for ever."""
        # Not wait_for(), which swallows a cancellation that comes with the news.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
