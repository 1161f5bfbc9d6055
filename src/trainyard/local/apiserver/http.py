"""HTTP/1.1 on httptools: one protocol object per connection, requests in turn, keep-alive.

A framework costs a fifth to a third of the throughput and more start-up time than the whole
server; SPDY, which kubectl's port-forward insists on, needs the bare transport anyway: a handler
takes it over by answering with an `Upgrade`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from contextlib import aclosing
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

import httptools

from trainyard.kube.errors import ApiError
from trainyard.kube.ownership import Peer, peer_of
from trainyard.local.apiserver import formats
from trainyard.local.apiserver.identity import Authenticate, Identity
from trainyard.local.apiserver.messages import Handler, Request, Response, Stream, Upgrade
from trainyard.local.apiserver.wire import Wire
from trainyard.local.failures import bad_request, too_large

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 << 20
"""As kube-apiserver: no object may be larger."""
_MAX_HEAD_BYTES = 64 << 10
_DRAIN_SECONDS = 60.0
"""A client that reads nothing for so long is cut off."""

_CLEAN_UP_SECONDS = 5.0
"""After its client is gone, what runs on a wire has so long to end by itself."""

_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self, handler: Handler, authenticate: Authenticate, connections: set[Connection]
    ) -> None:
        self._handler = handler
        self._authenticate = authenticate
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport  # from connection_made on
        self._peer: Peer | None = None
        self._queue: deque[tuple[Request | Response, bool]] = deque()
        """Requests to be answered in turn; an answer that is there already is a refusal."""
        self._refused = False
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._wire: Wire | None = None
        self._lost = asyncio.Event()
        self._leftover = b""
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._identity: Identity | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._peer = _peer(transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.feed(data)
            return
        if self._refused:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._leftover = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            refusal = error.__context__
            if not isinstance(refusal, ApiError):
                refusal = bad_request("the request is not HTTP/1.1 as it is spoken here")
            self._refuse(refusal)

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
        self._identity = self._authenticate(self._headers, self._peer)
        if self._identity is None:
            raise ApiError("Unauthorized", code=401, reason="Unauthorized")
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > MAX_BODY_BYTES:
            raise too_large("the body of a request has at most 3 MiB")
        self._body.append(body)

    def on_message_complete(self) -> None:
        assert self._identity is not None  # on_headers_complete would have refused
        path, _, query = _origin_form(self._url.decode("latin-1")).partition("?")
        queries = parse_qsl(query, keep_blank_values=True) if query else []
        request = Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path) if "%" in path else path,
            dict(queries),
            queries,
            self._headers,
            self._body[0] if len(self._body) == 1 else b"".join(self._body),
            self._identity,
        )
        self._answer(request, self._parser.should_keep_alive())
        self._reset()

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _MAX_HEAD_BYTES:
            raise ApiError(
                f"the head of a request has at most {_MAX_HEAD_BYTES >> 10} KiB",
                code=431,
                reason="RequestHeaderFieldsTooLarge",
            )

    # Answering.

    def _refuse(self, error: ApiError) -> None:
        """Answer what has come before, then this, then close; nothing more is parsed."""
        self._refused = True
        self._reset()
        self._answer(formats.error_response(error), keep_alive=False)

    def _answer(self, item: Request | Response, keep_alive: bool) -> None:
        self._queue.append((item, keep_alive))
        if self._task is None:
            self._task = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._queue:
                request, keep_alive = self._queue.popleft()
                if isinstance(request, Response):
                    self._send(request, keep_alive)
                    self._transport.close()
                    return
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
        self._wire = Wire(self._transport, self.drain)
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

    def abort(self) -> asyncio.Task[None] | None:
        """Close at once; returns the answer under way, which is being cancelled."""
        self._transport.abort()
        return self._task


def _head(
    status: int, content_type: str, headers: list[tuple[str, str]], keep_alive: bool
) -> bytes:
    text = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {content_type}\r\n"
    text += "".join(f"{name}: {value}\r\n" for name, value in headers)
    text += "\r\n" if keep_alive else "Connection: close\r\n\r\n"
    return text.encode("latin-1", "replace")


def _origin_form(target: str) -> str:
    """A request's target without scheme and authority (RFC 9112, section 3.2.2)."""
    if target.startswith("/") or "://" not in target:
        return target
    _, slash, rest = target.partition("://")[2].partition("/")
    return slash + rest


def _peer(transport: asyncio.BaseTransport) -> Peer | None:
    """Who is at the other end of a Unix socket; see unix(7), SO_PEERCRED."""
    end = transport.get_extra_info("socket")
    if end is None or end.family != socket.AF_UNIX:
        return None
    return peer_of(end)
