"""A transport that tells of every request: how it was answered, and after how long."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainyard.kube.transport import Request, Response, StreamResponse, Transport

OnResponse = Callable[[Request, int, float], None]
"""Told the request, the HTTP status (0: no answer came) and the seconds until the answer; of a
stream until its headers."""


class MeasuredTransport:
    """Does what the transport inside does."""

    def __init__(self, inside: Transport, tell: OnResponse) -> None:
        self._inside = inside
        self._tell = tell

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """See `Transport`."""
        asked, status = time.monotonic(), 0
        try:
            response = await self._inside.request(request, timeout_seconds)
            status = response.status
            return response
        finally:
            self._tell(request, status, time.monotonic() - asked)

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """See `Transport`."""
        asked, told = time.monotonic(), False
        try:
            async with self._inside.stream(request, timeout_seconds) as response:
                told = True
                self._tell(request, response.status, time.monotonic() - asked)
                yield response
        finally:
            if not told:
                self._tell(request, 0, time.monotonic() - asked)

    async def aclose(self) -> None:
        """See `Transport`."""
        await self._inside.aclose()
