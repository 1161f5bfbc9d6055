"""HTTP/1.1 over a Unix socket: the path to the embedded API server.

Written on asyncio and httptools alone, because importing an HTTP client library costs more than
a whole short job (aiohttp about 200 ms, httptools 2 ms).
"""

from __future__ import annotations

import asyncio
import collections
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import httptools

from trainyard.kube.errors import Unreachable
from trainyard.kube.ownership import address, check_server
from trainyard.kube.transport import Request, Response, StreamResponse

# A stream whose reader is slow stops reading from the socket beyond this many unread bytes.
_HIGH_WATER = 1 << 20
_MAX_CONNECTIONS = 64
_FULL_SECONDS = 0.01


class _Exchange:
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
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)


class _Connection(asyncio.Protocol):
    """One keep-alive connection; it carries one exchange at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.exchange: _Exchange | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.reusable = True
        self.closed = False
        self.buffered = 0
        self.is_stream = False
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

    # Called by the transport's user.
    def start(self, request: Request) -> _Exchange:
        """Send a request; the connection must be idle."""
        assert self.transport is not None
        self.exchange = exchange = _Exchange(self.loop)
        self.finished = self.loop.create_future()
        self.transport.write(_encode(request))
        return exchange

    def read(self, exchange: _Exchange) -> bytes:
        """Everything that has arrived and was not read yet."""
        data = b"".join(exchange.chunks)
        exchange.chunks.clear()
        self.buffered = 0
        self._set_reading(True)
        return data

    def fail(self, why: str) -> None:
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
        self.reusable = False
        if self.transport is not None and not self.closed:
            self.transport.abort()

    def _set_reading(self, reading: bool) -> None:
        if self._reading != reading and self.transport is not None and not self.closed:
            self._reading = reading
            (self.transport.resume_reading if reading else self.transport.pause_reading)()


def _encode(request: Request) -> bytes:
    head = (
        f"{request.method} {request.path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Accept: {request.accept}\r\nUser-Agent: trainyard\r\n"
    )
    if request.body:
        head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
    elif request.method not in ("GET", "HEAD"):
        head += "Content-Length: 0\r\n"
    return head.encode("latin-1") + b"\r\n" + request.body


class UnixTransport:
    """A pool of keep-alive connections to one Unix socket."""

    def __init__(self, path: str | Path, *, max_connections: int = _MAX_CONNECTIONS) -> None:
        self._path = str(path)
        self._idle: list[_Connection] = []
        self._streams: set[_Connection] = set()
        self._slots = asyncio.Semaphore(max_connections)
        self._closed = False

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""
        try:
            async with asyncio.timeout(timeout_seconds), self._slots:
                return await self._attempt(request)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer from {self._path} within {timeout_seconds:g} s "
                f"({request.method} {request.path})"
            ) from error

    async def _attempt(self, request: Request) -> Response:
        while True:
            connection, fresh = await self._acquire()
            try:
                exchange = connection.start(request)
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
                raise Unreachable(f"no answer from {self._path}: {exchange.error}")

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """Open a stream on a connection of its own."""
        connection: _Connection | None = None
        try:
            try:
                async with asyncio.timeout(timeout_seconds):
                    connection = await self._connect()
                    connection.is_stream = True
                    self._streams.add(connection)
                    exchange = connection.start(request)
                    await exchange.headers_ready
            except TimeoutError as error:
                raise Unreachable(
                    f"no answer from {self._path} within {timeout_seconds:g} s (GET {request.path})"
                ) from error
            if exchange.error is not None:
                raise Unreachable(f"no answer from {self._path}: {exchange.error}")
            yield StreamResponse(exchange.status, exchange.headers, _chunks(connection, exchange))
        finally:
            if connection is not None:
                self._streams.discard(connection)
                connection.close()

    async def aclose(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in [*self._idle, *self._streams]:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    async def _acquire(self) -> tuple[_Connection, bool]:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and not connection.closed:
                return connection, False
        return await self._connect(), True

    async def _connect(self) -> _Connection:
        if self._closed:
            raise Unreachable(f"cannot reach {self._path}: the client is closed")
        loop = asyncio.get_running_loop()
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await _open(end, self._path)
            check_server(end, self._path)
            _, connection = await loop.create_unix_connection(_Connection, sock=end)
        except BaseException as error:
            end.close()
            if not isinstance(error, OSError):
                raise
            raise Unreachable(
                f"cannot reach the API server at {self._path}: {error.strerror or error}"
            ) from error
        return connection

    def _release(self, connection: _Connection) -> None:
        if connection.reusable and not connection.closed and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()


async def _open(end: socket.socket, path: str) -> None:
    """Connect. A Unix socket does so at once, or not at all while too many wait to be accepted."""
    with address(path) as short:
        while True:
            try:
                end.connect(short)
                return
            except BlockingIOError:
                await asyncio.sleep(_FULL_SECONDS)


async def _chunks(connection: _Connection, exchange: _Exchange) -> AsyncIterator[bytes]:
    while True:
        if exchange.chunks:
            yield connection.read(exchange)
            continue
        if exchange.error is not None:
            raise Unreachable(f"the stream broke off: {exchange.error}")
        if exchange.done:
            return
        exchange.wake = connection.loop.create_future()
        await exchange.wake
