"""A command in a container, over the WebSocket that `kubectl exec` uses too.

The protocol is `v5.channel.k8s.io` (KEP-4006): each binary message begins with a channel number, 0
to 2 for the standard streams, 3 for the outcome as a Status, 4 for terminal sizes, 255 to close a
channel. Servers before Kubernetes 1.30 speak v4, which lacks the last one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import aiohttp

from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.replica_commands import Execution
from trainyard.kube.errors import Unreachable, error_of_response, error_of_status
from trainyard.kube.resources import PODS
from trainyard.machine.ownership import socket_address

STDIN, STDOUT, STDERR, OUTCOME, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_V5 = "v5.channel.k8s.io"
_PROTOCOLS = (_V5, "v4.channel.k8s.io")
_CONNECT_SECONDS = 30.0
_HEARTBEAT_SECONDS = 30.0


class ExecStream:
    """A command that runs in a container."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, what: str) -> None:
        self._socket = socket
        self._what = what
        self.exit_code: int | None = None
        """Known once the output has ended."""

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes, with STDOUT or STDERR; ends with the command (see `exit_code`)."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if not data:
                continue  # servers begin with an empty message on each channel
            if channel in (STDOUT, STDERR):
                yield channel, data
            elif channel == OUTCOME:
                self.exit_code = exit_code(json.loads(data), self._what)
                return
        raise CommandError(f"cannot {self._what}: the connection broke off")

    async def write(self, data: bytes) -> None:
        """Feed its standard input."""
        await self._send(STDIN, data)

    async def close_stdin(self) -> None:
        """Let it read end-of-file, where the server knows how to."""
        if self._socket.protocol == _V5:
            await self._send(CLOSE, bytes([STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        """Tell its terminal the size of ours."""
        await self._send(RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    async def _send(self, channel: int, data: bytes) -> None:
        if not self._socket.closed:
            with suppress(ConnectionResetError):  # the command has ended, which `output` tells
                await self._socket.send_bytes(bytes([channel]) + data)


def exit_code(status: dict[str, Any], what: str) -> int:
    """The command's exit code from the Status on the outcome channel; raises if it did not run."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise error_of_status(status, what)


@asynccontextmanager
async def run_in_container(
    target: ClusterTarget, wanted: Execution
) -> AsyncGenerator[ExecStream, None]:
    """Start a command in a container, and end it with the block."""
    query = [("container", wanted.container), *(("command", word) for word in wanted.words)]
    flags = {"stdin": wanted.stdin, "stdout": True, "stderr": not wanted.tty, "tty": wanted.tty}
    query += [(name, "true") for name, is_on in flags.items() if is_on]
    path = f"{PODS.path(wanted.pod.namespace, wanted.pod.name, 'exec')}?{urlencode(query)}"
    what = f"run a command in {wanted.pod.name}"
    async with AsyncExitStack() as stack:
        try:
            session, url, options = await stack.enter_async_context(_session(target, path))
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await session.ws_connect(
                    url, protocols=_PROTOCOLS, max_msg_size=0, autoping=True, **options
                )
        except aiohttp.WSServerHandshakeError as error:
            raise error_of_response(error.status, await _why(session, url, options), what) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = str(error) or type(error).__name__
            raise Unreachable(f"cannot {what}: {text}") from error
        async with socket:
            yield ExecStream(socket, what)


async def _why(session: aiohttp.ClientSession, url: Any, options: dict[str, Any]) -> bytes:
    """The body of a refusal, which the failed handshake has thrown away: ask once more."""
    kept = {key: value for key, value in options.items() if key != "heartbeat"}
    kept["headers"] = {
        **kept.get("headers", {}),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": ", ".join(_PROTOCOLS),
    }
    async with asyncio.timeout(_CONNECT_SECONDS), session.get(url, **kept) as answer:
        return await answer.read() if answer.status >= 300 else b""


@asynccontextmanager
async def _session(
    target: ClusterTarget, path: str
) -> AsyncGenerator[tuple[aiohttp.ClientSession, Any, dict[str, Any]], None]:
    """A session, the URL, and what else the connection needs."""
    from yarl import URL

    if target.socket:
        url = URL(f"http://localhost{path}", encoded=True)
        with socket_address(target.socket) as short:
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(short)) as session:
                yield session, url, {}
        return
    from trainyard.kube.cluster_transport import connect

    transport, _ = await connect(target.kubeconfig, target.context)
    url, options = await transport.route(path)
    async with aiohttp.ClientSession() as session:
        yield session, url, {**options, "heartbeat": _HEARTBEAT_SECONDS}
