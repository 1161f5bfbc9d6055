"""HTTP/1.1 on httptools: one protocol object per connection, requests in turn, keep-alive.

A framework costs a fifth to a third of the throughput and more start-up time than the whole
server; SPDY, which kubectl's port-forward insists on, needs the bare transport anyway: a handler
takes it over by answering with an `Upgrade`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

import httptools

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 << 20
"""As kube-apiserver: no object may be larger."""
_MAX_HEAD_BYTES = 64 << 10
_DRAIN_SECONDS = 60.0
"""A client that reads nothing for so long is cut off."""

_CLEAN_UP_SECONDS = 5.0
"""After its client is gone, what runs on a wire has so long to end by itself."""
_HIGH_WATER_BYTES = 2 << 20

_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request, body included. Header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    """Last value of each key; `queries` has all of them."""
    queries: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes

    def flag(self, name: str) -> bool:
        """A boolean of the query, as Kubernetes reads it."""
        return self.query.get(name, "") in ("1", "true", "True")


@dataclass(slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """An answer without a known end; an empty chunk is not sent."""

    chunks: AsyncGenerator[bytes]
    content_type: str = "application/json"


@dataclass(slots=True)
class Upgrade:
    """An answer 101: from now on the connection speaks another protocol.

    `run` is given a `Wire` and ends when the connection is to be closed.
    """

    headers: list[tuple[str, str]]
    run: Callable[[Wire], Awaitable[None]]


Answer = Response | Stream | Upgrade
Handler = Callable[[Request], Awaitable[Answer]]


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, handler: Handler, connections: set[Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport  # from connection_made on
        self._queue: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._wire: Wire | None = None
        self._lost = asyncio.Event()
        self._leftover = b""
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.feed(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._leftover = data[upgrade.args[0] :]
        except (httptools.HttpParserError, ValueError):
            self._refuse(400, b"the request is not HTTP/1.1 as it is spoken here\n")

    def eof_received(self) -> None:
        if self._wire is not None:
            self._wire.feed_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._wire is not None:
            self._wire.feed_eof()  # whatever runs on the wire cleans up by itself
            self._lost.set()
        elif self._task is not None:
            self._task.cancel()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Called by the parser.

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > MAX_BODY_BYTES:
            self._refuse(413, b"the request is too large: at most 3 MiB\n")
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode("latin-1").partition("?")
        queries = parse_qsl(query, keep_blank_values=True) if query else []
        request = Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path) if "%" in path else path,
            dict(queries),
            queries,
            self._headers,
            self._body[0] if len(self._body) == 1 else b"".join(self._body),
        )
        self._queue.append((request, self._parser.should_keep_alive()))
        self._reset()
        if self._task is None:
            self._task = self._loop.create_task(self._serve())

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _MAX_HEAD_BYTES:
            raise ValueError("the request's head is too large")

    # Answering.

    async def _serve(self) -> None:
        try:
            while self._queue:
                request, keep_alive = self._queue.popleft()
                answer = await self._handler(request)
                if isinstance(answer, Response):
                    self._send(answer, keep_alive, with_body=request.method != "HEAD")
                elif isinstance(answer, Stream):
                    await self._send_stream(answer, keep_alive)
                else:
                    await self._hand_over(answer)
                    keep_alive = False
                if not keep_alive:
                    self._transport.close()
        except (ConnectionError, TimeoutError):
            self.abort()
        except Exception:
            # The head of the answer has been sent: all that can be said is that it broke off.
            _log.exception("an answer broke off")
            self.abort()
        finally:
            self._task = None

    def _send(self, response: Response, keep_alive: bool, *, with_body: bool = True) -> None:
        headers = [*response.headers, ("Content-Length", str(len(response.body)))]
        head = _head(response.status, response.content_type, headers, keep_alive)
        self._transport.write(head + response.body if with_body else head)

    async def _send_stream(self, stream: Stream, keep_alive: bool) -> None:
        headers = [("Transfer-Encoding", "chunked")]
        self._transport.write(_head(200, stream.content_type, headers, keep_alive))
        async with aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                if chunk:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    await self.drain()
        self._transport.write(b"0\r\n\r\n")

    async def _hand_over(self, upgrade: Upgrade) -> None:
        head = b"HTTP/1.1 101 Switching Protocols\r\n"
        head += b"".join(
            f"{name}: {value}\r\n".encode("latin-1") for name, value in upgrade.headers
        )
        self._wire = Wire(self, self._transport)
        self._wire.feed(self._leftover)
        self._transport.write(head + b"\r\n")
        running = asyncio.ensure_future(upgrade.run(self._wire))
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({running}, timeout=_CLEAN_UP_SECONDS)
        finally:
            lost.cancel()
            running.cancel()
            outcome, _ = await asyncio.gather(running, lost, return_exceptions=True)
            if isinstance(outcome, Exception):
                _log.warning("a stream broke off: %r", outcome)

    async def drain(self) -> None:
        """Wait until the client has read most of what was written."""
        if self._writable is not None:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await asyncio.shield(self._writable)

    def _refuse(self, status: int, text: bytes) -> None:
        if not self._transport.is_closing():
            self._send(Response(status, text, "text/plain"), keep_alive=False)
            self._transport.close()

    def abort(self) -> asyncio.Task[None] | None:
        """Close at once; returns the answer under way, which is being cancelled."""
        self._transport.abort()
        return self._task


class Wire:
    """A connection after an upgrade, as plain bytes in both directions."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._reader = asyncio.StreamReader()
        self._waiting = 0
        self._ended = False

    async def read(self, count: int) -> bytes:
        data = await self._reader.readexactly(count)
        self._waiting -= count
        self._flow()
        return data

    async def write(self, data: bytes) -> None:
        self._transport.write(data)
        await self._connection.drain()

    def feed(self, data: bytes) -> None:
        """Bytes from the client (the connection's business)."""
        if data and not self._ended:
            self._reader.feed_data(data)
            self._waiting += len(data)
            self._flow()

    def feed_eof(self) -> None:
        """The client sends no more (the connection's business)."""
        if not self._ended:
            self._ended = True
            self._reader.feed_eof()

    def _flow(self) -> None:
        """Stop reading from a client that is faster than the pod."""
        if self._transport.is_closing():
            return
        if self._waiting > _HIGH_WATER_BYTES:
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()


def _head(
    status: int, content_type: str, headers: list[tuple[str, str]], keep_alive: bool
) -> bytes:
    text = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {content_type}\r\n"
    text += "".join(f"{name}: {value}\r\n" for name, value in headers)
    text += "\r\n" if keep_alive else "Connection: close\r\n\r\n"
    return text.encode("latin-1", "replace")


def media_types(accept: str) -> list[tuple[str, Mapping[str, str]]]:
    """The alternatives of an Accept header in order: media type and parameters."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for part in accept.split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((kind.lower(), {key: value for key, _, value in pairs}))
    return found
