"""HTTP to any Kubernetes cluster, with TLS and whatever credentials its kubeconfig names.

Imported only when such a cluster is used: aiohttp costs 200 ms at start-up.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from trainyard.kube.credentials import Cluster, load
from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request, Response, StreamResponse

_MAX_CONNECTIONS = 100
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

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send one request and read the whole answer within `timeout_seconds`."""
        limits = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with await self._send(request, limits) as answer:
                return Response(answer.status, _lower(answer.headers), await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

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
        """The address of a path, and what else aiohttp must be told to get there."""
        cluster = self._cluster
        credentials = await cluster.credentials()
        if self._tls is None or credentials.is_new_certificate:
            self._tls = cluster.tls(credentials)
        authorization = credentials.authorization
        return URL(cluster.server.rstrip("/") + path, encoded=True), {
            "headers": {"Authorization": authorization} if authorization else {},
            "ssl": self._tls,
            "server_hostname": cluster.tls_server_name or None,
            "proxy": cluster.proxy or None,
        }

    async def aclose(self) -> None:
        """Close every connection."""
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

    def _unreachable(self, error: BaseException) -> Unreachable:
        text = str(error) or type(error).__name__
        return Unreachable(f"no answer from the API server at {self._cluster.server}: {text}")


def probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices by itself when the other side is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
