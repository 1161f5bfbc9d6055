"""HTTP/1.1 on httptools: one protocol object per connection, requests answered in order.

A framework costs a fifth to a third of the throughput, and its import takes longer than the start
of the whole server. SPDY, which kubectl's port-forward requires, needs the bare transport anyway: a
handler takes the connection over by answering with an `Upgrade`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from enum import Enum, auto
from http import HTTPStatus
from typing import cast

import httptools

from trainyard.embedded import browser_origin
from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.auth.request_identity import Identity
from trainyard.embedded.apiserver.http.connection_limits import ConnectionSlot
from trainyard.embedded.apiserver.http.http_messages import Request, Response, Stream, Upgrade
from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream
from trainyard.embedded.apiserver.requests import response_encoding
from trainyard.embedded.apiserver.requests.request_limits import MAX_BODY_BYTES, body_too_large
from trainyard.kube.errors import ApiError
from trainyard.machine.ownership import Peer, peer_of

_log = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 16 << 10
"""Parsed at once, before the number of waiting requests is checked again."""
_MAX_WAITING = 16
"""Requests of one connection that may wait before reading pauses."""
_DRAIN_SECONDS = 60.0
"""A client that reads nothing for so long is disconnected."""
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 4 << 20
"""For so long, what a refused client still sends is discarded, so that it reads the refusal."""
_LARGE_BYTES = 256 << 10
"""Size from which an answer counts as buffered."""
_CLEAN_UP_SECONDS = 5.0
"""After the client has gone, an upgraded stream has so long to end by itself."""


class _Phase(Enum):
    """What is being read from a connection."""

    NOTHING = auto()
    """Between two requests."""
    HEAD = auto()
    BODY = auto()
    REFUSED = auto()
    """Nothing more is; the refusal is on its way."""
    UPGRADED = auto()
    """Another protocol."""


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, slot: ConnectionSlot) -> None:
        self._slot = slot
        self._limiter = slot.limiter
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport  # from connection_made on
        self._peer: Peer | None = None
        self._queue: deque[tuple[Request | Response, bool]] = deque()
        """Requests to be answered in order; a Response in it is a refusal."""
        self._waiting_bytes = 0
        """Of the bodies in the queue."""
        self._unparsed = b""
        """Bytes received while enough requests were waiting."""
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._upgraded: UpgradedStream | None = None
        self._lost = asyncio.Event()
        self._discarded = 0
        self._is_request_complete = False
        """The refused request was read to its end."""
        self._is_switching = False
        """The client asked for another protocol: what it sends next is not HTTP."""
        self._reset()
        self._enter(_Phase.HEAD)

    def _reset(self) -> None:
        self._url = b""
        self._identity: Identity | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._body = bytearray()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._since = self._loop.time()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._peer = _peer(transport)
        self._slot.connection = self
        self._enter(_Phase.HEAD)

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.feed(data)
        elif self._phase is _Phase.REFUSED:
            self._discard(len(data))
        elif self._unparsed or self._is_switching or self._has_enough_waiting():
            self._unparsed += data
            self._pause_reading()
        else:
            self._parse(data)

    def eof_received(self) -> None:
        if self._upgraded is not None:
            self._upgraded.feed_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._slot.free()
        if self._upgraded is not None:
            self._upgraded.feed_eof()  # whatever runs on the wire cleans up by itself
            self._lost.set()
        elif self._task is not None:
            self._task.cancel()
        self.resume_writing()
        # The parser and this object hold each other: nothing large may wait for the collector.
        self._reset()
        self._queue.clear()
        self._unparsed = b""
        del self._parser

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def expire(self, now: float) -> None:
        """Close the connection where its client exceeds a time limit; called by the listener."""
        limits, took = self._limiter.limits, now - self._since
        if self._phase is _Phase.REFUSED:
            if took > _LINGER_SECONDS and self._task is None:
                self.abort()
        elif self._unparsed or self._has_enough_waiting():
            self._since = now  # it is we who do not read
        elif self._phase is _Phase.HEAD and took > limits.head_seconds:
            self._refuse(_too_slow("head", limits.head_seconds))
        elif self._phase is _Phase.BODY and took > limits.body_seconds:
            self._refuse(_too_slow("body", limits.body_seconds))
        elif self._phase is _Phase.NOTHING and self._task is not None:
            self._since = now
        elif self._phase is _Phase.NOTHING and took > limits.idle_seconds:
            self._transport.close()

    # Reading.

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                if self._has_enough_waiting():
                    self._unparsed = bytes(rest)
                    self._pause_reading()
                    return
                piece = rest if self._phase is _Phase.BODY else rest[:_PIECE_BYTES]
                rest = rest[len(piece) :]
                self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._is_switching = True
            self._unparsed = bytes(piece[upgrade.args[0] :]) + bytes(rest)
        except httptools.HttpParserError as error:
            refusal = error.__context__
            if not isinstance(refusal, ApiError):
                refusal = bad_request("the request is not HTTP/1.1 as it is spoken here")
            self._refuse(refusal)

    def _has_enough_waiting(self) -> bool:
        return len(self._queue) >= _MAX_WAITING or self._waiting_bytes >= MAX_BODY_BYTES

    def _pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_parsing(self) -> None:
        """Continue to parse after requests were answered."""
        if not self._unparsed or self._is_switching or self._has_enough_waiting():
            return
        data, self._unparsed = self._unparsed, b""
        self._parse(data)
        if not self._unparsed and not self._transport.is_closing():
            self._transport.resume_reading()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _LINGER_BYTES and self._task is None:
            self.abort()

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._enter(_Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._enter(_Phase.BODY)
        identity = self._limiter.authenticate(self._headers, self._peer)
        if identity is None:
            raise ApiError("Unauthorized", code=401, reason="Unauthorized")
        self._slot.assign_user(identity)
        headers = self._headers
        problem = browser_origin.is_browser(headers) and browser_origin.page_problem(headers)
        if problem:
            raise ApiError(f"forbidden: {problem}", code=403, reason="Forbidden")
        self._identity = identity
        length = self._headers.get("content-length", "")
        if length.isdigit() and (len(length) > 9 or int(length) > MAX_BODY_BYTES):
            raise body_too_large()
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if len(self._body) + len(body) > MAX_BODY_BYTES:
            raise body_too_large()
        self._slot.reserve_bytes(len(body))
        self._body += body

    def on_message_complete(self) -> None:
        assert self._identity is not None  # on_headers_complete would have refused
        request = Request.from_target(
            self._parser.get_method().decode("latin-1"),
            _without_authority(self._url.decode("latin-1")),
            self._headers,
            bytes(self._body),
            self._identity,
        )
        keep_alive = self._parser.should_keep_alive()
        self._reset()
        self._enter(_Phase.NOTHING)
        self._answer(request, keep_alive)

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
        """Answer earlier requests, then send this error, then close; nothing more is parsed."""
        self._slot.release_bytes(len(self._body))
        self._is_request_complete = self._headers.get("content-length", "0") == "0" and (
            "transfer-encoding" not in self._headers
        )
        self._reset()
        self._unparsed = b""
        self._enter(_Phase.REFUSED)
        self._answer(response_encoding.error_response(error), keep_alive=False)

    def _answer(self, item: Request | Response, keep_alive: bool) -> None:
        self._queue.append((item, keep_alive))
        self._waiting_bytes += len(item.body)
        if self._task is None:
            self._task = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._queue:
                request, keep_alive = self._queue.popleft()
                self._waiting_bytes -= len(request.body)
                self._resume_parsing()
                if isinstance(request, Response):
                    self._send(request, keep_alive)
                    await self.drain()
                    self._enter(_Phase.REFUSED)  # from now on it may linger
                    if self._is_request_complete:
                        self._transport.close()
                    return
                keep_alive = await self._answer_one(request, keep_alive and not self._is_switching)
                self._slot.release_bytes(len(request.body))
                if not keep_alive:
                    self._transport.close()
                    return
                if self._queue:
                    await asyncio.sleep(0)  # others have their turn
        except (ConnectionError, TimeoutError):
            self.abort()
        except Exception:
            # The head of the answer has been sent: all that can be said is that it broke off.
            _log.exception("an answer broke off")
            self.abort()
        finally:
            self._task = None

    async def _answer_one(self, request: Request, keep_alive: bool) -> bool:
        """Answer one request; returns whether the connection stays open."""
        answer = await self._limiter.handler(request)
        if isinstance(answer, Stream):
            await self._send_stream(answer, keep_alive)
            return keep_alive
        if isinstance(answer, Upgrade):
            await self._run_upgrade(answer)
            return False
        reserved = len(answer.body) if len(answer.body) > _LARGE_BYTES else 0
        try:
            # A write has been done: its answer cannot be taken back.
            self._slot.reserve_bytes(reserved, always=request.method not in ("GET", "HEAD"))
        except ApiError as refusal:
            answer, reserved = response_encoding.error_response(refusal), 0
        self._send(answer, keep_alive, with_body=request.method != "HEAD")
        await self.drain()
        self._slot.release_bytes(reserved)
        return keep_alive

    def _send(self, response: Response, keep_alive: bool, *, with_body: bool = True) -> None:
        headers = [*response.headers, ("Content-Length", str(len(response.body)))]
        head = _response_head(response.status, response.content_type, headers, keep_alive)
        self._transport.write(head + response.body if with_body else head)

    async def _send_stream(self, stream: Stream, keep_alive: bool) -> None:
        self._transport.write(_stream_head(stream, keep_alive))
        async with aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                if chunk:
                    self._transport.write(_chunk_bytes(stream, chunk))
                    await self.drain()
        self._transport.write(b"" if stream.sized else b"0\r\n\r\n")

    async def _run_upgrade(self, upgrade: Upgrade) -> None:
        self._upgraded = UpgradedStream(self._transport, self.drain)
        self._enter(_Phase.UPGRADED)
        self._upgraded.feed(self._unparsed)
        self._unparsed = b""
        self._transport.write(_switching_head(upgrade.headers))
        running = asyncio.ensure_future(upgrade.run(self._upgraded))
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


def _too_slow(part: str, seconds: float) -> ApiError:
    text = f"the {part} of the request did not arrive within {seconds:g} s"
    return ApiError(text, code=408, reason="Timeout")


def _peer(transport: asyncio.BaseTransport) -> Peer | None:
    """Credentials of the peer of a Unix socket; see unix(7), SO_PEERCRED."""
    end = transport.get_extra_info("socket")
    if end is None or end.family != socket.AF_UNIX:
        return None
    return peer_of(end)


_REASONS = {status.value: status.phrase for status in HTTPStatus}
_Headers = Sequence[tuple[str, str]]


def _response_head(status: int, content_type: str, headers: _Headers, keep_alive: bool) -> bytes:
    """Status line and headers of an answer; its length is in `headers`."""
    text = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
    text += f"Content-Type: {content_type}\r\n" if content_type else ""
    text += "".join(f"{name}: {value}\r\n" for name, value in headers)
    text += "\r\n" if keep_alive else "Connection: close\r\n\r\n"
    return text.encode("latin-1", "replace")


def _stream_head(stream: Stream, keep_alive: bool) -> bytes:
    """Status line and headers of an answer whose body follows in chunks."""
    chunked = () if stream.sized else (("Transfer-Encoding", "chunked"),)
    headers = (*stream.headers, *chunked)
    return _response_head(stream.status, stream.content_type, headers, keep_alive)


def _chunk_bytes(stream: Stream, chunk: bytes) -> bytes:
    """One chunk as it is sent (RFC 9112, section 7.1)."""
    return chunk if stream.sized else b"%x\r\n%b\r\n" % (len(chunk), chunk)


def _without_authority(target: str) -> str:
    """A request's target without scheme and authority (RFC 9112, section 3.2.2)."""
    if target.startswith("/") or "://" not in target:
        return target
    _, slash, rest = target.partition("://")[2].partition("/")
    return slash + rest


def _switching_head(headers: _Headers) -> bytes:
    """The answer 101, after which another protocol is spoken."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode("latin-1")
