"""Limits what a client asks of an API server: concurrent requests, and requests a second.

Opening a watch counts as a request of that second. An open watch does not count as concurrent:
watches last, and many of them would leave no room for requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.kube.adaptive_concurrency import AdaptiveConcurrency
from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request, Response, StreamResponse, Transport
from trainyard.schema.dataclass import dataclass

# https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
_TOO_MANY = 429
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one client."""

    timeout_seconds: float = 30.0
    """For each answer, from the moment when the request is sent."""
    at_once: int = 100
    """The most concurrent requests; fewer while the server is slow or refuses requests."""
    per_second: int = 0
    """The rate; as many may be sent together after a pause. 0: no limit."""


class PacedTransport:
    """A transport that keeps to limits; requests that wait go out in order."""

    def __init__(self, transport: Transport, limits: RequestLimits) -> None:
        self._transport = transport
        self._slots = AdaptiveConcurrency(limits.at_once)
        self._interval = 1 / limits.per_second if limits.per_second else 0.0
        self._next = float("-inf")
        """When the next request may go, on the loop's clock; in the past after a pause."""

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Wait for a slot, send one request and read the whole answer."""
        slots, clock = self._slots, asyncio.get_running_loop().time
        await slots.acquire()
        try:
            await self._wait_for_token()
            asked_at = clock()
            try:
                response = await self._transport.request(request, timeout_seconds)
            except Unreachable:
                slots.on_refusal()
                raise
            if response.status == _TOO_MANY or (
                response.status == _UNAVAILABLE and "retry-after" in response.headers
            ):
                slots.on_refusal()
            elif request.method != "GET":  # the time of a list depends on its length
                slots.on_answer(clock() - asked_at)
            return response
        finally:
            slots.release()

    async def quiet(self, seconds: float) -> None:
        """Wait until the server has little to do for us, at most for so many seconds."""
        await self._slots.wait_until_quiet(seconds)

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """Open a stream, as soon as the rate allows."""
        await self._wait_for_token()
        async with self._transport.stream(request, timeout_seconds) as response:
            yield response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _wait_for_token(self) -> None:
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        # A bucket that is full holds the tokens of one second.
        self._next = max(self._next, now - 1.0) + self._interval
        if self._next > now:
            await asyncio.sleep(self._next - now)
