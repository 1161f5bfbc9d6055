"""`kubectl exec` and `kubectl attach`: a program's streams over SPDY or WebSocket channels.

Both transports carry the same five channels; a status object on the error channel ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing, suppress
from typing import Any, Protocol

import orjson

from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.http.http_messages import Request, Upgrade
from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream
from trainyard.embedded.apiserver.pod_access.bidirectional import until_one_ends
from trainyard.embedded.apiserver.pod_access.spdy import SpdyConnection, SpdyStream
from trainyard.embedded.apiserver.pod_access.websocket import WebSocket, negotiate
from trainyard.embedded.kubelet_api import ExecSession, KubeletApi
from trainyard.embedded.resources.served.pods_resource import chosen_container
from trainyard.embedded.storage.journal import Object
from trainyard.schema.errors import TrainyardError

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_NAMES = ("stdin", "stdout", "stderr", "error", "resize")
_SPDY_PROTOCOL = "v4.channel.k8s.io"
_PLAIN_PROTOCOL = "channel.k8s.io"
"""The first version, which reports an exit code in words; also for clients that name none."""
_WEBSOCKET_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", _PLAIN_PROTOCOL)
_STREAM_SECONDS = 30.0
_CLIENT_CLOSE_SECONDS = 1.0
"""Time for the client to close the connection once everything was sent."""


class Channels(Protocol):
    """The client's end of a command."""

    async def open(self, expected: set[str]) -> None:
        """Wait for the streams of these names; called first."""

    async def send(self, channel: int, data: bytes) -> None:
        """Send bytes to the client."""

    def incoming(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """Channel and bytes from the client (None: it closed the channel), until it is gone."""

    async def finish(self) -> None:
        """End every channel."""


async def execute(request: Request, pod: Object, runtime: KubeletApi) -> Upgrade:
    """Start the command that `request` asks for, then switch protocols."""
    command = [value for key, value in request.queries if key == "command"]
    if not command:
        raise bad_request("you must specify at least one command for the container")
    container = chosen_container(pod, request.query.get("container", ""))
    how = {"stdin": request.flag("stdin"), "tty": request.flag("tty")}
    return await _respond(request, runtime.exec(pod, container, command, **how))


async def attach(request: Request, pod: Object, runtime: KubeletApi) -> Upgrade:
    """Attach to a container, then switch protocols."""
    container = chosen_container(pod, request.query.get("container", ""))
    return await _respond(request, runtime.attach(pod, container, stdin=request.flag("stdin")))


async def _respond(request: Request, starting: Coroutine[Any, Any, ExecSession]) -> Upgrade:
    with closing(starting):
        protocol, headers = negotiate(
            request, _SPDY_PROTOCOL, _WEBSOCKET_PROTOCOLS, unnamed=_PLAIN_PROTOCOL
        )
        try:
            session = await starting
        except TrainyardError as error:
            raise bad_request(str(error)) from error
    tty = request.flag("tty")
    expected = {"error", *(name for name in ("stdin", "stdout") if request.flag(name))}
    expected |= {"resize"} if tty else {"stderr"} if request.flag("stderr") else set()

    async def run(wire: UpgradedStream) -> None:
        try:
            channels: Channels
            if protocol:
                channels = _WebSocketChannels(WebSocket(wire))
            else:
                channels = _SpdyChannels(SpdyConnection(wire))
            await channels.open(expected)
            await _serve(session, channels, is_plain=protocol == _PLAIN_PROTOCOL)
        finally:
            await session.close()

    return Upgrade(headers, run)


async def _serve(session: ExecSession, channels: Channels, *, is_plain: bool) -> None:
    """Serve until the command has ended and the client has closed, or the client is gone.

    A client that still writes when the connection is closed may never read how the command ended.
    """

    async def send_output() -> None:
        await _send_output(session, channels, is_plain=is_plain)
        await asyncio.sleep(_CLIENT_CLOSE_SECONDS)

    await until_one_ends(_receive_input(session, channels), send_output())


async def _receive_input(session: ExecSession, channels: Channels) -> None:
    async for channel, data in channels.incoming():
        if channel == _STDIN:
            await (session.close_stdin() if data is None else session.write(data))
        elif channel == _RESIZE and data:
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):
                size = orjson.loads(data)
                await session.resize(int(size["Width"]), int(size["Height"]))


async def _send_output(session: ExecSession, channels: Channels, *, is_plain: bool) -> None:
    async for output in session.output():
        await channels.send(output.stream, output.data)
    status = _status(await session.wait())
    if not is_plain:
        await channels.send(_ERROR, orjson.dumps(status))
    elif "message" in status:
        await channels.send(_ERROR, status["message"].encode())
    await channels.finish()


def _status(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class _WebSocketChannels:
    """Messages whose first byte is the channel."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def open(self, expected: set[str]) -> None:
        """Announce the streams as Kubernetes does, by an empty message on the first of those that
        the client reads."""
        first = next(each for each in (_STDOUT, _STDERR, _ERROR) if _NAMES[each] in expected)
        await self.send(first, b"")

    async def send(self, channel: int, data: bytes) -> None:
        await self._socket.send(bytes([channel]) + data)

    async def incoming(self) -> AsyncIterator[tuple[int, bytes | None]]:
        while message := await self._socket.receive():
            if message[0] == _CLOSE:
                yield (message[1] if len(message) > 1 else _STDIN), None
            elif len(message) > 1:
                yield message[0], message[1:]

    async def finish(self) -> None:
        await self._socket.close()


class _SpdyChannels:
    """One SPDY stream for each channel."""

    def __init__(self, connection: SpdyConnection) -> None:
        self._accepting = connection.accept()
        self._streams: dict[int, SpdyStream] = {}

    async def open(self, expected: set[str]) -> None:
        """Wait until the client has opened all its streams."""
        missing = set(expected)
        async with asyncio.timeout(_STREAM_SECONDS):
            while missing:
                stream = await anext(self._accepting)
                name = stream.headers.get("streamtype", "")
                missing.discard(name)
                self._streams[_NAMES.index(name) if name in _NAMES else _ERROR] = stream

    async def send(self, channel: int, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            await stream.write(data)

    async def incoming(self) -> AsyncIterator[tuple[int, bytes | None]]:
        arrived: asyncio.Queue[tuple[int, bytes | None] | None] = asyncio.Queue(16)

        async def read(channel: int, stream: SpdyStream) -> None:
            while data := await stream.read():
                await arrived.put((channel, data))
            await arrived.put((channel, None))

        async def watch() -> None:
            async for _ in self._accepting:  # reads the connection; no more streams are expected
                pass
            await arrived.put(None)

        tasks = [asyncio.create_task(watch())]
        tasks += [
            asyncio.create_task(read(channel, self._streams[channel]))
            for channel in (_STDIN, _RESIZE)
            if channel in self._streams
        ]
        try:
            while (item := await arrived.get()) is not None:
                yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self) -> None:
        for stream in self._streams.values():
            await stream.finish()
