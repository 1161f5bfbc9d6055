"""A connection after a protocol upgrade: plain bytes in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_HIGH_WATER_BYTES = 2 << 20


class UpgradedStream:
    """Handed to the `run` of an `Upgrade`."""

    def __init__(self, transport: asyncio.Transport, drain: Callable[[], Awaitable[None]]) -> None:
        self._transport = transport
        self._drain = drain
        self._reader = asyncio.StreamReader()
        self._waiting = 0
        self._ended = False

    async def read(self, count: int) -> bytes:
        data = await self._reader.readexactly(count)
        self._waiting -= count
        self._flow()
        return data

    async def read_some(self, limit: int) -> bytes:
        """What is there, up to `limit` bytes; empty when the client sends no more."""
        data = await self._reader.read(limit)
        self._waiting -= len(data)
        self._flow()
        return data

    async def write(self, data: bytes) -> None:
        self._transport.write(data)
        await self._drain()

    def feed(self, data: bytes) -> None:
        """Bytes from the client; called by the connection."""
        if data and not self._ended:
            self._reader.feed_data(data)
            self._waiting += len(data)
            self._flow()

    def feed_eof(self) -> None:
        """The client sends no more; called by the connection."""
        if not self._ended:
            self._ended = True
            self._reader.feed_eof()

    def _flow(self) -> None:
        """Pause reading from a client that is faster than the pod."""
        if self._transport.is_closing():
            return
        if self._waiting > _HIGH_WATER_BYTES:
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()
