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
from trainyard.local.apiserver.identity import People
from trainyard.local.apiserver.kubeconfigs import Kubeconfigs
from trainyard.local.findings import Findings
from trainyard.local.registry import Registry
from trainyard.local.runtime import PodRuntime
from trainyard.schema.errors import TrainyardError

_CLOSE_SECONDS = 2.0


class ServeError(TrainyardError):
    """A listener cannot be opened."""


class ApiServer:
    """Serves one registry; open any number of listeners, then `close()`."""

    def __init__(
        self,
        registry: Registry,
        runtime: PodRuntime | None = None,
        people: People | None = None,
        findings: Findings | None = None,
    ) -> None:
        """`runtime` answers for logs, exec and port-forward; without it they are refused.

        `people` are those who may use it; without any, it is its owner's alone.
        """
        self._people = people or People()
        self._api = Api(registry, runtime, findings)
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._socket_path: Path | None = None

    async def serve_unix(self, path: Path) -> None:
        """Listen on a Unix socket, which only this user can open where nobody else may use it.

        Replaces a stale file.
        """
        loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with address(path) as short:
                listener.bind(short)
            path.chmod(0o666 if self._people.are_several else 0o600)
        except OSError as error:
            listener.close()
            raise ServeError(f"cannot listen on {path}: {error.strerror or error}") from error
        protocol = partial(Connection, self._api, self._people.of_socket, self._connections)
        server = await loop.create_unix_server(protocol, sock=listener)
        self._socket_path = path
        self._servers.append(server)

    async def serve_tls(
        self, port: int, *, certificate: Path, key: Path, token: str, host: str = "127.0.0.1"
    ) -> int:
        """Listen on loopback over TLS; returns the port (0: any free).

        `token` is the owner's; others have one of their own.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        loop = asyncio.get_running_loop()
        protocol = partial(Connection, self._api, self._people.of_port(token), self._connections)
        try:
            server = await loop.create_server(protocol, host, port, ssl=context)
        except OSError as error:
            raise ServeError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def give_kubeconfigs(self, port: int, authority: Path, token: str) -> None:
        """From now on everybody gets a kubeconfig of their own for the TLS port."""
        self._api.kubeconfigs = Kubeconfigs(self._people.tokens, port, authority, token)

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
