"""The embedded API server: the registry over HTTP, on a Unix socket and, if asked, over TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path

from trainyard.kube.ownership import address
from trainyard.local.apiserver.app import Api
from trainyard.local.apiserver.http import Connection
from trainyard.local.apiserver.identity import holder_of, owner_of_socket
from trainyard.local.registry import Registry
from trainyard.local.runtime import PodRuntime
from trainyard.schema.errors import TrainyardError

_CLOSE_SECONDS = 2.0


class ServeError(TrainyardError):
    """A listener cannot be opened."""


class ApiServer:
    """Serves one registry; open any number of listeners, then `close()`."""

    def __init__(self, registry: Registry, runtime: PodRuntime | None = None) -> None:
        """`runtime` answers for logs, exec and port-forward; without it they are refused."""
        self._api = Api(registry, runtime)
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._socket_path: Path | None = None

    async def serve_unix(self, path: Path) -> None:
        """Listen on a Unix socket that only this user can open; replaces a stale file."""
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with address(path) as short:
                listener.bind(short)
            path.chmod(0o600)
        except OSError as error:
            listener.close()
            raise ServeError(f"cannot listen on {path}: {error.strerror or error}") from error
        protocol = partial(Connection, self._api, owner_of_socket, self._connections)
        server = await loop.create_unix_server(protocol, sock=listener)
        self._socket_path = path
        self._servers.append(server)

    async def serve_tls(
        self, port: int, *, certificate: Path, key: Path, token: str, host: str = "127.0.0.1"
    ) -> int:
        """Listen on loopback over TLS for holders of `token`; returns the port (0: any free)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        loop = asyncio.get_running_loop()
        protocol = partial(Connection, self._api, holder_of(token), self._connections)
        try:
            server = await loop.create_server(protocol, host, port, ssl=context)
        except OSError as error:
            raise ServeError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection."""
        for server in self._servers:
            server.close()
        answers = [connection.abort() for connection in tuple(self._connections)]
        for server in self._servers:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await server.wait_closed()
        self._servers.clear()
        if under_way := [task for task in answers if task is not None]:
            await asyncio.wait(under_way, timeout=_CLOSE_SECONDS)
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
