"""HTTP over a Unix socket: the path to the embedded API server."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from trainyard.kube.errors import Unreachable
from trainyard.kube.http_connections import Connection, Exchange, Pool, encoded
from trainyard.kube.transport import Request, Response, StreamResponse
from trainyard.machine.ownership import check_runs, check_server, peer_of, socket_address

_MAX_CONNECTIONS = 64
_FULL_SECONDS = 0.01
_PATIENCE_SECONDS = 4.0
_log = logging.getLogger(__name__)
_HEADERS = {"Host": "localhost", "User-Agent": "trainyard"}


class UnixTransport:
    """A pool of keep-alive connections to one Unix socket."""

    def __init__(self, path: str | Path, *, max_connections: int = _MAX_CONNECTIONS) -> None:
        self._path = str(path)
        self._pid = 0
        self._streams: set[Connection] = set()
        self._pool = Pool(self._path, self._connect, max_connections=max_connections)

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""
        with self._watched():
            return await self._pool.request(request, _HEADERS, timeout_seconds)

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """Open a stream on a connection of its own."""
        connection: Connection | None = None
        try:
            with self._watched():
                try:
                    async with asyncio.timeout(timeout_seconds):
                        connection = await self._connect()
                        connection.is_stream = True
                        self._streams.add(connection)
                        exchange = connection.start(encoded(request, _HEADERS))
                        await exchange.headers_ready
                except TimeoutError as error:
                    raise Unreachable(
                        f"no answer from {self._path} within {timeout_seconds:g} s "
                        f"(GET {request.path})"
                    ) from error
            if exchange.error is not None:
                raise Unreachable(f"no answer from {self._path}: {exchange.error}")
            yield StreamResponse(exchange.status, exchange.headers, _chunks(connection, exchange))
        finally:
            if connection is not None:
                self._streams.discard(connection)
                connection.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Log that the server is silent while it is asked, and say in errors what to do."""
        told = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._tell_silence)
        try:
            yield
        except Unreachable as error:
            if not self._pid or not isinstance(error.__cause__, TimeoutError):
                raise
            check_runs(self._pid)
            raise Unreachable(
                f"{error}: process {self._pid} hangs; if it stays so: kill -9 {self._pid}, then "
                "trainyard up (replicas go on)"
            ) from error
        finally:
            told.cancel()

    def _tell_silence(self) -> None:
        _log.warning(
            "the cluster (process %d) has not answered for %g s", self._pid, _PATIENCE_SECONDS
        )

    async def aclose(self) -> None:
        """Close every connection."""
        self._pool.close()
        for connection in self._streams:
            connection.close()
        await asyncio.sleep(0)

    async def _connect(self) -> Connection:
        if self._pool.closed:
            raise Unreachable(f"cannot reach {self._path}: the client is closed")
        loop = asyncio.get_running_loop()
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await _open(end, self._path)
            check_server(end, self._path)
            self._pid = peer_of(end).pid
            check_runs(self._pid)
            _, connection = await loop.create_unix_connection(Connection, sock=end)
        except BaseException as error:
            end.close()
            if not isinstance(error, OSError):
                raise
            raise Unreachable(
                f"cannot reach the API server at {self._path}: {error.strerror or error}"
            ) from error
        return connection


async def _open(end: socket.socket, path: str) -> None:
    """Connect. A Unix socket does so at once, or not at all while too many wait to be accepted."""
    with socket_address(path) as short:
        while True:
            try:
                end.connect(short)
                return
            except BlockingIOError:
                await asyncio.sleep(_FULL_SECONDS)


async def _chunks(connection: Connection, exchange: Exchange) -> AsyncIterator[bytes]:
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
