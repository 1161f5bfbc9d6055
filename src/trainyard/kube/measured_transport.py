"""A transport that reports every request: its status, and how long it took."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainyard.kube.transport import Request, Response, StreamResponse, Transport

OnResponse = Callable[[Request, int, float], None]
"""Called with the request, the HTTP status (0: no answer) and the seconds until the answer, or
until the headers of a stream."""


class MeasuredTransport:
    """Passes everything on to another transport."""

    def __init__(self, inner: Transport, on_response: OnResponse) -> None:
        self._inner = inner
        self._on_response = on_response

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """See `Transport`."""
        asked, status = time.monotonic(), 0
        try:
            response = await self._inner.request(request, timeout_seconds)
            status = response.status
            return response
        finally:
            self._on_response(request, status, time.monotonic() - asked)

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """See `Transport`."""
        asked, has_headers = time.monotonic(), False
        try:
            async with self._inner.stream(request, timeout_seconds) as response:
                has_headers = True
                self._on_response(request, response.status, time.monotonic() - asked)
                yield response
        finally:
            if not has_headers:
                self._on_response(request, 0, time.monotonic() - asked)

    async def aclose(self) -> None:
        """See `Transport`."""
        await self._inner.aclose()
