"""What the client asks of a transport: one answer, or a stream of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import urlencode

from trainyard.kube.errors import StreamError
from trainyard.schema.dataclass import dataclass

Params = Mapping[str, str | int | bool | None]


def with_query(path: str, params: Params) -> str:
    """A path with its query, of those that are not None and not empty."""
    query = {
        key: ("true" if value else "false") if isinstance(value, bool) else value
        for key, value in params.items()
        if value is not None and value != ""
    }
    return f"{path}?{urlencode(query)}" if query else path


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` is absolute and already encoded, query included."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """An answer whose body arrives in chunks, for as long as the server goes on."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Carries requests to one API server; many may be under way at once.

    Both methods raise `Unreachable` when no answer can be had.
    """

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""

    def stream(
        self, request: Request, timeout_seconds: float
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Open a stream; `timeout_seconds` bounds the wait for the headers only."""

    async def aclose(self) -> None:
        """Close every connection; requests under way fail with `Unreachable`."""


async def lines(
    chunks: AsyncIterator[bytes], idle_seconds: float | None, what: str
) -> AsyncIterator[bytes]:
    """The lines of a stream; raises StreamError when it falls silent or ends within one."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise StreamError(f"cannot {what}: silence for {idle_seconds:g} s") from error
        if chunk is None:
            if rest.strip():
                raise StreamError(f"cannot {what}: the stream ended in the middle of a line")
            return
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
