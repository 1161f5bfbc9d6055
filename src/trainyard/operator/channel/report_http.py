"""A minimal HTTP/1.1 server for reports, with limits on everything that a pod could send or occupy.

Pods run code of users, so it must not trust them: sizes, times and connections are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from http import HTTPStatus
from typing import Any

import httptools

from trainyard.schema.dataclass import dataclass

log = logging.getLogger(__name__)

MAX_BODY = 64 << 10
_MAX_HEAD = 8 << 10
_MAX_CONNECTIONS, _MAX_OF_PEER = 1024, 128
"""Above, the connection that was useful least recently is closed. A peer is an address: a pod's,
or, behind address translation, that of all pods of a node."""
_HANDSHAKE_SECONDS, _REQUEST_SECONDS, _IDLE_SECONDS, _LINGER_SECONDS = 5.0, 10.0, 90.0, 1.0
_UNREAD_BYTES = 4 * MAX_BODY


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request."""

    method: str
    target: str
    headers: Mapping[bytes, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer; `body` is JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[HttpRequest], HttpReply]
Refuse = Callable[[int, str], HttpReply]


class ReportServer:
    """Accepts connections, up to the limits, and answers requests; `answer` must not raise."""

    def __init__(self, context: Callable[[], ssl.SSLContext], answer: Answer, refuse: Refuse):
        """`context` is called for each connection, since certificates are renewed."""
        self._context = context
        self.answer, self.refuse = answer, refuse
        self._open: OrderedDict[socket.socket, str] = OrderedDict()
        self._of_peer: Counter[str] = Counter()

    async def serve(self, listening: socket.socket) -> None:
        """Accept on a listening socket until cancelled."""
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    connection, address = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("the pods' channel accepts nothing just now: %s", error)
                    await asyncio.sleep(0.5)
                    continue
                group.create_task(self._handle_connection(connection, str(address[0])))

    def mark_useful(self, connection: socket.socket) -> None:
        """The connection has brought a report: it is closed last."""
        if connection in self._open:
            self._open.move_to_end(connection)

    async def _handle_connection(self, connection: socket.socket, peer: str) -> None:
        if self._of_peer[peer] >= _MAX_OF_PEER:
            connection.close()
            return
        self._open[connection] = peer
        self._of_peer[peer] += 1
        if len(self._open) > _MAX_CONNECTIONS:
            with contextlib.suppress(OSError):
                next(iter(self._open)).shutdown(socket.SHUT_RDWR)
        try:
            await self._serve_connection(connection)
        except (OSError, TimeoutError) as error:  # mostly a failed TLS handshake
            log.debug("a connection of %s came to nothing: %s", peer, error)
        except Exception:  # a defect that one connection runs into must not end the others
            log.exception("a connection of the pods' channel failed")
        finally:
            connection.close()
            del self._open[connection]
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]

    async def _serve_connection(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol = _Protocol(self, connection)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._context(),
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_LINGER_SECONDS,
        )
        try:
            await protocol.lost
        finally:
            transport.abort()


class _RequestRefused(Exception):
    """Ends the parsing of a request that was refused."""


class _Protocol(asyncio.Protocol):
    """One connection. A request must be complete within its time, however it arrives."""

    def __init__(self, server: ReportServer, connection: socket.socket) -> None:
        self._server, self._connection = server, connection
        loop = self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._refused: HttpReply | None = None
        self._unread = 0
        self._reset()

    def _reset(self) -> None:
        self._target, self._body = b"", bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0

    def _set_timeout(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, then)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._set_timeout(_REQUEST_SECONDS, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    def _abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:
            # Closing a socket with unread data may discard the answer (RFC 9112, 9.6).
            self._unread += len(data)
            if self._unread > _UNREAD_BYTES:
                self._abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.BAD_REQUEST, "there is nothing to upgrade to")
        except httptools.HttpParserError as error:
            if self._refused is None:
                self._refuse(HTTPStatus.BAD_REQUEST, f"not HTTP: {error}")
        if self._transport.get_write_buffer_size() > _UNREAD_BYTES:
            self._abort()  # it sends requests without reading the answers

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self._reset()
        self._set_timeout(_REQUEST_SECONDS, self._refuse_slow_request)

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value
        self._count_head(len(name) + len(value))

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _MAX_HEAD:
            self._refuse_and_stop(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long"
            )

    def on_headers_complete(self) -> None:
        length = self._headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > MAX_BODY:
            self._refuse_large_body()
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY:
            self._refuse_large_body()

    def _refuse_large_body(self) -> None:
        text = f"a report has at most {MAX_BODY >> 10} KiB"
        self._refuse_and_stop(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)

    def on_message_complete(self) -> None:
        if self._refused is not None:
            return
        method = self._parser.get_method().decode(errors="replace")
        target = self._target.decode(errors="replace")
        request = HttpRequest(method, target, self._headers, bytes(self._body))
        reply = self._server.answer(request)
        keeps = self._parser.should_keep_alive()
        self._write(reply, keeps=keeps)
        if reply.status == HTTPStatus.OK:
            self._server.mark_useful(self._connection)
        self._set_timeout(_IDLE_SECONDS, self._transport.close)
        if not keeps:
            self._transport.close()

    def _write(self, reply: HttpReply, *, keeps: bool) -> None:
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines += ["Content-Type: application/json", f"Content-Length: {len(reply.body)}"]
        lines += [f"Connection: {'keep-alive' if keeps else 'close'}", "", ""]
        self._transport.write("\r\n".join(lines).encode() + reply.body)

    def _refuse_slow_request(self) -> None:
        text = f"the request was not there within {_REQUEST_SECONDS:g} s"
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)

    def _refuse_and_stop(self, status: int, text: str) -> None:
        if self._refused is None:
            self._refuse(status, text)
        raise _RequestRefused

    def _refuse(self, status: int, text: str) -> None:
        self._refused = self._server.refuse(status, text)
        self._write(self._refused, keeps=False)
        self._set_timeout(_LINGER_SECONDS, self._transport.close)
