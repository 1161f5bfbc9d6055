"""The way to the API server from its own process: requests as over a socket, without one.

What is asked and answered is the same, bytes of JSON included; left out are the connection, the
head's text and its parsing, and so what limits what comes over a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager

from trainyard.embedded.apiserver import formats
from trainyard.embedded.apiserver.bounds import MAX_BODY_BYTES, body_too_large
from trainyard.embedded.apiserver.identity import OWNER
from trainyard.embedded.apiserver.messages import Handler, Request, Response, Stream, Upgrade
from trainyard.kube import transport
from trainyard.kube.errors import Unreachable

_AGENT = "trainyard"


class DirectTransport:
    """Implements `trainyard.kube.transport.Transport`, for whoever started the cluster."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_closed = False

    async def request(
        self, request: transport.Request, timeout_seconds: float
    ) -> transport.Response:
        """Have one request answered within `timeout_seconds`; raises Unreachable."""
        answer = await self._answer(request, timeout_seconds)
        if isinstance(answer, Response):
            headers = _lower(answer.headers)
            return transport.Response(answer.status, headers, answer.body)
        async with aclosing(answer.chunks) as chunks:
            try:
                async with asyncio.timeout(timeout_seconds):
                    body = b"".join([chunk async for chunk in chunks])
            except TimeoutError as error:
                raise _too_late(request, timeout_seconds) from error
        return transport.Response(answer.status, _lower(answer.headers), body)

    @asynccontextmanager
    async def stream(
        self, request: transport.Request, timeout_seconds: float
    ) -> AsyncIterator[transport.StreamResponse]:
        """An answer as it is made; raises Unreachable."""
        answer = await self._answer(request, timeout_seconds)
        chunks = _whole(answer) if isinstance(answer, Response) else answer.chunks
        async with aclosing(chunks):
            yield transport.StreamResponse(answer.status, _lower(answer.headers), chunks)

    async def aclose(self) -> None:
        """Answer nothing any more."""
        self._is_closed = True

    async def _answer(
        self, request: transport.Request, timeout_seconds: float
    ) -> Response | Stream:
        if self._is_closed:
            raise Unreachable("cannot reach the API server: the client is closed")
        if len(request.body) > MAX_BODY_BYTES:
            return formats.error_response(body_too_large())
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._handler(_understood(request))
        except TimeoutError as error:
            raise _too_late(request, timeout_seconds) from error
        if isinstance(answer, Upgrade):
            raise Unreachable(f"{request.path} speaks another protocol, which needs a connection")
        return answer


def _understood(request: transport.Request) -> Request:
    """As the server's own parser gives it."""
    headers = {"host": "localhost", "user-agent": _AGENT, "accept": request.accept}
    if request.body:
        headers["content-type"] = request.content_type
    return Request.to(request.method, request.path, headers, request.body, OWNER)


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


async def _whole(answer: Response) -> AsyncGenerator[bytes]:
    yield answer.body


def _too_late(request: transport.Request, seconds: float) -> Unreachable:
    what = f"{request.method} {request.path}"
    return Unreachable(f"no answer from the API server within {seconds:g} s ({what})")
