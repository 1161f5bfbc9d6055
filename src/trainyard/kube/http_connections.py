"""HTTP/1.1 on asyncio and httptools alone: keep-alive connections that carry one request each.

Importing an HTTP client library costs more than a whole short job (aiohttp about 200 ms, httptools
2 ms), and using one costs an operator a third of its processor time (decision 187).
"""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import httptools

from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request, Response

_HIGH_WATER = 1 << 20
"""A stream whose reader is slow stops reading from the socket beyond this many unread bytes."""


class Exchange:
    """One request on one connection, and the answer as it arrives."""

    __slots__ = ("chunks", "done", "error", "headers", "headers_ready", "status", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: collections.deque[bytes] = collections.deque()
        self.headers_ready: asyncio.Future[None] = loop.create_future()
        self.wake: asyncio.Future[None] | None = None
        self.done = False
        self.error: str | None = None

    def notify(self) -> None:
        """Something has arrived."""
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)


class Connection(asyncio.Protocol):
    """One keep-alive connection; it carries one exchange at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.reusable = True
        self.closed = False
        self.buffered = 0
        self.is_stream = False
        self.idle_since = 0.0
        self.finished: asyncio.Future[None] | None = None
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's, by class.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"the answer is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.fail("the server closed the connection" if error is None else str(error))

    # Called by the parser.
    def on_header(self, name: bytes, value: bytes) -> None:
        if self.exchange is not None:
            self.exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self.close()
            return
        exchange.status = self.parser.get_status_code()
        if not exchange.headers_ready.done():
            exchange.headers_ready.set_result(None)

    def on_body(self, body: bytes) -> None:
        if self.exchange is not None:
            self.exchange.chunks.append(body)
            self.buffered += len(body)
            if self.buffered > _HIGH_WATER and self.is_stream:
                self._set_reading(False)
            self.exchange.notify()

    def on_message_complete(self) -> None:
        if not self.parser.should_keep_alive():
            self.reusable = False
        if self.exchange is not None:
            self.exchange.done = True
            self.exchange.notify()
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(None)

    # Called by the connection's user.
    def start(self, message: bytes) -> Exchange:
        """Send a request; the connection must be idle."""
        assert self.transport is not None
        self.exchange = exchange = Exchange(self.loop)
        self.finished = self.loop.create_future()
        self.transport.write(message)
        return exchange

    def read(self, exchange: Exchange) -> bytes:
        """Everything that has arrived and was not read yet."""
        data = b"".join(exchange.chunks)
        exchange.chunks.clear()
        self.buffered = 0
        self._set_reading(True)
        return data

    def fail(self, why: str) -> None:
        """Nothing more will come."""
        self.reusable = False
        exchange = self.exchange
        if exchange is not None and not exchange.done:
            exchange.done = True
            exchange.error = why
            if not exchange.headers_ready.done():
                exchange.headers_ready.set_result(None)
            exchange.notify()
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(None)
        self.close()

    def close(self) -> None:
        """Close it at once."""
        self.reusable = False
        if self.transport is not None and not self.closed:
            self.transport.abort()

    def _set_reading(self, reading: bool) -> None:
        if self._reading != reading and self.transport is not None and not self.closed:
            self._reading = reading
            (self.transport.resume_reading if reading else self.transport.pause_reading)()


class Pool:
    """Idle connections to one server, and how many there may be at once.

    `server` is named in errors; `connect` opens a connection, or raises Unreachable. One that was
    idle for longer than `idle_seconds` is not used again: what lies between may have forgotten it.
    """

    def __init__(
        self,
        server: str,
        connect: Callable[[], Awaitable[Connection]],
        *,
        max_connections: int,
        idle_seconds: float = math.inf,
    ) -> None:
        self._server = server
        self._connect = connect
        self._idle: collections.deque[Connection] = collections.deque()
        self._slots = asyncio.Semaphore(max_connections)
        self._idle_seconds = idle_seconds
        self.closed = False

    async def request(
        self, request: Request, headers: Mapping[str, str], timeout_seconds: float
    ) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""
        try:
            async with asyncio.timeout(timeout_seconds), self._slots:
                return await self._attempt(request, encoded(request, headers))
        except TimeoutError as error:
            raise Unreachable(
                f"no answer from {self._server} within {timeout_seconds:g} s "
                f"({request.method} {request.path})"
            ) from error

    async def _attempt(self, request: Request, message: bytes) -> Response:
        while True:
            connection, fresh = await self._acquire()
            try:
                exchange = connection.start(message)
                assert connection.finished is not None
                await connection.finished
            except BaseException:
                connection.close()
                raise
            if exchange.error is None:
                body = connection.read(exchange)
                connection.exchange = None
                self._release(connection)
                return Response(exchange.status, exchange.headers, body)
            # The server may have closed an idle connection just as we took it. A read can be
            # sent again; for a write the caller must find out whether it was applied.
            if fresh or request.method != "GET":
                raise Unreachable(f"no answer from {self._server}: {exchange.error}")

    def close(self) -> None:
        """Close every idle connection; the others are closed by those who use them."""
        self.closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _acquire(self) -> tuple[Connection, bool]:
        self._drop_old()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and not connection.closed:
                return connection, False
        if self.closed:
            raise Unreachable(f"cannot reach {self._server}: the client is closed")
        return await self._connect(), True

    def _drop_old(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._idle and self._idle[0].idle_since + self._idle_seconds < now:
            self._idle.popleft().close()

    def _release(self, connection: Connection) -> None:
        if connection.reusable and not connection.closed and not self.closed:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)
        else:
            connection.close()


def encoded(request: Request, headers: Mapping[str, str]) -> bytes:
    """A request as it is sent; `headers` are the server's own, `Host` among them."""
    head = f"{request.method} {request.path} HTTP/1.1\r\nAccept: {request.accept}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if request.body:
        head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
    elif request.method not in ("GET", "HEAD"):
        head += "Content-Length: 0\r\n"
    return head.encode("latin-1") + b"\r\n" + request.body
