"""How much a client may ask of an API server: requests at once, and requests a second.

Watches count among those a second when they are opened, and never among those at once, since they
last: were they counted, many would leave no room for requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.kube.adaptive_concurrency import Concurrency
from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request, Response, StreamResponse, Transport
from trainyard.schema.dataclass import dataclass

# https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
_TOO_MANY = 429
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one client."""

    timeout_seconds: float = 30.0
    """For the answer to a request, from when it is sent."""
    at_once: int = 100
    """At most; fewer while the server is slow, or asks for less."""
    per_second: int = 0
    """After a pause as many may be sent together; 0: any number."""


class PacedTransport:
    """A transport that keeps to limits; what has to wait goes in the order in which it came."""

    def __init__(self, transport: Transport, limits: Limits) -> None:
        self._transport = transport
        self._slots = Concurrency(limits.at_once)
        self._interval = 1 / limits.per_second if limits.per_second else 0.0
        self._next = float("-inf")
        """When the bucket holds a token again, were all that it holds taken one by one."""

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request, when it is its turn, and read the whole answer."""
        slots, clock = self._slots, asyncio.get_running_loop().time
        await slots.acquire()
        try:
            await self._turn()
            asked_at = clock()
            try:
                response = await self._transport.request(request, timeout_seconds)
            except Unreachable:
                slots.refused()
                raise
            if response.status == _TOO_MANY or (
                response.status == _UNAVAILABLE and "retry-after" in response.headers
            ):
                slots.refused()
            elif request.method != "GET":  # how long a list takes is told by its length
                slots.answered(clock() - asked_at)
            return response
        finally:
            slots.release()

    async def quiet(self, seconds: float) -> None:
        """Until the server has little to do for us, or for that long."""
        await self._slots.quiet(seconds)

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """Open a stream, when it is its turn."""
        await self._turn()
        async with self._transport.stream(request, timeout_seconds) as response:
            yield response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _turn(self) -> None:
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        # A bucket that is full holds the tokens of one second.
        self._next = max(self._next, now - 1.0) + self._interval
        if self._next > now:
            await asyncio.sleep(self._next - now)
