"""HTTP to any Kubernetes cluster, with TLS and whatever credentials its kubeconfig names.

Imported only when such a cluster is used: aiohttp costs 200 ms at start-up.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from trainyard.kube.credentials import Cluster, Credentials, load
from trainyard.kube.errors import Unreachable
from trainyard.kube.http_connections import Connection, Pool
from trainyard.kube.transport import Request, Response, StreamResponse

_MAX_CONNECTIONS = 100
_IDLE_SECONDS = 60.0
_PORTS = {"http": 80, "https": 443}
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A quiet connection is probed after 30 s, and given up when the other side is silent for 30 s
more: a watch whose server vanished without a word would else hang until its timeout."""


async def connect(
    path: str | Path | None = None,
    context: str | None = None,
    *,
    connections: int = _MAX_CONNECTIONS,
) -> tuple[ClusterTransport, str]:
    """A transport to the cluster of a kubeconfig, and the namespace its context names.

    `connections`: as many at once, watches included; 0: any number.
    """
    cluster = await asyncio.to_thread(load, path, context)
    return ClusterTransport(cluster, connections), cluster.namespace


class ClusterTransport:
    """A pool of HTTPS connections to one API server."""

    def __init__(self, cluster: Cluster, connections: int = _MAX_CONNECTIONS) -> None:
        self._cluster = cluster
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._certificate = b""
        self._pool: Pool | None = None
        self._base = urlsplit(cluster.server.rstrip("/"))

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""
        if self._cluster.proxy:
            return await self._through_proxy(request, timeout_seconds)
        credentials = await self._credentials()
        if self._pool is None:
            self._pool = Pool(
                self._name,
                self._connect,
                max_connections=self._connections or sys.maxsize,
                idle_seconds=_IDLE_SECONDS,
            )
        headers = {
            "Host": self._base.netloc.rpartition("@")[2],
            "User-Agent": "trainyard",
            "Accept-Encoding": "gzip",
        }
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        if self._base.path:
            request = replace(request, path=self._base.path + request.path)
        answer = await self._pool.request(request, headers, timeout_seconds)
        if answer.headers.get("content-encoding") != "gzip":
            return answer
        return replace(answer, body=gzip.decompress(answer.body))

    async def _through_proxy(self, request: Request, timeout_seconds: float) -> Response:
        limits = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with await self._send(request, limits) as answer:
                return Response(answer.status, _lower(answer.headers), await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    async def _connect(self) -> Connection:
        host, port = self._base.hostname or "", self._base.port or _PORTS[self._base.scheme]
        is_tls = self._base.scheme == "https"
        try:
            transport, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                host,
                port,
                ssl=self._tls if is_tls else None,
                server_hostname=(self._cluster.tls_server_name or host) if is_tls else None,
            )
        except OSError as error:
            raise self._unreachable(error) from error
        probe(transport.get_extra_info("socket"))
        return connection

    async def _credentials(self) -> Credentials:
        """What to present now; connections of an older certificate are not used any more."""
        credentials = await self._cluster.credentials()
        if self._tls is None or credentials.certificate != self._certificate:
            self._tls = self._cluster.tls(credentials)
            self._certificate = credentials.certificate
            if self._pool is not None:
                self._pool.close()
                self._pool = None
        return credentials

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """Open a stream; `timeout_seconds` bounds the wait for the headers only."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._send(request, limits)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        async with answer:
            yield StreamResponse(answer.status, _lower(answer.headers), self._chunks(answer))

    async def route(self, path: str) -> tuple[URL, dict[str, Any]]:
        """Return the URL of a path, and the options with which aiohttp reaches it."""
        cluster = self._cluster
        authorization = (await self._credentials()).authorization
        return URL(cluster.server.rstrip("/") + path, encoded=True), {
            "headers": {"Authorization": authorization} if authorization else {},
            "ssl": self._tls,
            "server_hostname": cluster.tls_server_name or None,
            "proxy": cluster.proxy or None,
        }

    async def aclose(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            self._pool.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept, "User-Agent": "trainyard"}
        if request.body:
            headers["Content-Type"] = request.content_type
        url, options = await self.route(request.path)
        options["headers"] = headers | options["headers"]
        return await self._get_session().request(
            request.method,
            url,
            data=request.body or None,
            timeout=limits,
            allow_redirects=False,
            **options,
        )

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=60, socket_factory=probing_socket
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        return self._session

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    @property
    def _name(self) -> str:
        return f"the API server at {self._cluster.server}"

    def _unreachable(self, error: BaseException) -> Unreachable:
        return Unreachable(f"no answer from {self._name}: {str(error) or type(error).__name__}")


def probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices by itself when the other side is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    probe(made)
    return made


def probe(made: socket.socket) -> None:
    """Have a socket notice by itself when the other side is gone."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
