"""The embedded API server: the registry over HTTP, on a Unix socket and, if asked, over TLS."""

from __future__ import annotations

import asyncio
import math
import resource
import socket
import ssl
from pathlib import Path

from trainyard.embedded.apiserver.auth.kubeconfig_endpoint import KubeconfigEndpoint
from trainyard.embedded.apiserver.auth.request_identity import Authenticate, Authenticator
from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimiter, ConnectionLimits
from trainyard.embedded.apiserver.http.listener import Listener
from trainyard.embedded.apiserver.router import Router
from trainyard.embedded.kubelet_api import KubeletApi
from trainyard.embedded.registry import Registry
from trainyard.embedded.service_supervisor import Supervisor
from trainyard.machine.ownership import socket_address
from trainyard.schema.errors import TrainyardError

_CLOSE_SECONDS = 2.0
_SOCKET_FILES_SHARE, _PORT_FILES_SHARE = 0.4, 0.2
"""Of the file descriptors that this process may have."""
_MAX_CONNECTIONS = 1024
_BUFFERED_BYTES = 256 << 20
_IDLE_SECONDS = 120.0
"""Clients keep connections for 90 s at most (Go) and close them first; on the socket there is no
limit, since a client could write just as it is closed."""


class ServeError(TrainyardError):
    """A listener cannot be opened."""


class ApiServer:
    """Serves one registry; open any number of listeners, then `close()`."""

    def __init__(
        self,
        registry: Registry,
        runtime: KubeletApi | None = None,
        authenticator: Authenticator | None = None,
        supervisor: Supervisor | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """`runtime` answers for logs, exec and port-forward; without it they are refused.

        `authenticator` are those who may use it; without any, it is its owner's alone. `limits` are
        those of each listener, in the place of what this process can bear.
        """
        self._limits = limits
        self._authenticator = authenticator or Authenticator()
        self._api = Router(registry, runtime, supervisor, self._authenticator.allowed)
        self._listeners: list[Listener] = []
        self._socket_path: Path | None = None

    async def serve_unix(self, path: Path) -> None:
        """Listen on a Unix socket, which only this user can open where nobody else may use it.

        Replaces a stale file.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with socket_address(path) as short:
                listener.bind(short)
            path.chmod(0o666 if self._authenticator.has_other_users else 0o600)
        except OSError as error:
            listener.close()
            raise ServeError(f"cannot listen on {path}: {error.strerror or error}") from error
        self._listen(
            listener,
            self._authenticator.by_socket_peer,
            _connection_limits(_SOCKET_FILES_SHARE, idle=math.inf),
        )
        self._socket_path = path

    async def serve_tls(
        self, port: int, *, certificate: Path, key: Path, token: str, host: str = "127.0.0.1"
    ) -> int:
        """Listen on loopback over TLS; returns the port (0: any free).

        `token` is the owner's; others have one of their own.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            end = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ServeError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from error
        self._api.holder = self._authenticator.token_holder(token)
        limits = _connection_limits(_PORT_FILES_SHARE, idle=_IDLE_SECONDS)
        self._listen(end, self._authenticator.by_bearer_token(token), limits, context)
        return int(end.getsockname()[1])

    def serve_kubeconfigs(self, port: int, authority: Path, token: str) -> None:
        """From now on everybody gets a kubeconfig of their own for the TLS port."""
        self._api.kubeconfigs = KubeconfigEndpoint(
            self._authenticator.tokens, port, authority, token
        )

    async def close(self) -> None:
        """Stop listening and end every connection."""
        answers = [task for listener in self._listeners for task in listener.close()]
        self._listeners.clear()
        if answers:
            await asyncio.wait(answers, timeout=_CLOSE_SECONDS)
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)

    def _listen(
        self,
        end: socket.socket,
        authenticate: Authenticate,
        limits: ConnectionLimits,
        context: ssl.SSLContext | None = None,
    ) -> None:
        limiter = ConnectionLimiter(self._api, authenticate, self._limits or limits)
        self._listeners.append(Listener(end, limiter, context))


def _connection_limits(share: float, *, idle: float) -> ConnectionLimits:
    """What a listener may take of this process; the socket and the port each have their own.

    So nobody on the port can keep the controller and commands of this machine from being served.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = max(8, min(_MAX_CONNECTIONS, int(files * share)))
    return ConnectionLimits(
        connections=connections,
        unauthenticated=max(4, connections // 8),
        per_user=max(6, connections * 3 // 4),
        buffered_bytes=_BUFFERED_BYTES,
        idle_seconds=idle,
    )
