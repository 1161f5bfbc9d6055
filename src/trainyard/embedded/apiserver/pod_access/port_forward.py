"""`kubectl port-forward`: connections into a pod over SPDY streams, plain or inside a WebSocket.

The official Python and JavaScript clients speak WebSocket channels instead: the n-th port asked
for has two, 2n carries data, 2n + 1 a text when something fails; the first message on each is the
port's number. kr8s speaks them without a protocol's name, which Kubernetes takes for the same.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.http.http_messages import Request, Upgrade
from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream
from trainyard.embedded.apiserver.pod_access.spdy import SpdyConnection, SpdyStream
from trainyard.embedded.apiserver.pod_access.websocket import WebSocket, WebSocketDuplex, negotiate
from trainyard.embedded.kubelet_api import KubeletApi, PodConnection
from trainyard.embedded.storage.journal import Object
from trainyard.schema.errors import TrainyardError

_PROTOCOL = "portforward.k8s.io"
_TUNNEL = f"SPDY/3.1+{_PROTOCOL}"
_CHANNELS = "v4.channel.k8s.io"
_CHUNK = 32 << 10
_CONNECT_SECONDS = 10.0


def respond(request: Request, pod: Object, runtime: KubeletApi) -> Upgrade:
    """Switch protocols and serve whatever connections the client makes."""
    name = pod["metadata"]["name"]
    if (pod.get("status") or {}).get("phase") != "Running":
        raise bad_request(f"unable to forward port because pod {name} is not running")
    protocol, headers = negotiate(request, _PROTOCOL, (_TUNNEL, _CHANNELS), unnamed=_CHANNELS)
    ports = _ports(request) if protocol == _CHANNELS else []

    async def run(wire: UpgradedStream) -> None:
        if protocol == _CHANNELS:
            await _serve_channels(WebSocket(wire), ports, pod, runtime)
        else:
            duplex = WebSocketDuplex(WebSocket(wire)) if protocol else wire
            await _serve(SpdyConnection(duplex), pod, runtime)

    return Upgrade(headers, run)


def _ports(request: Request) -> list[int]:
    texts = [text for key, value in request.queries if key == "ports" for text in value.split(",")]
    if not texts or not all(text.isdigit() and 0 < int(text) < 1 << 16 for text in texts):
        raise bad_request(f"ports must be numbers from 1 to 65535, not {texts}")
    return [int(text) for text in texts]


async def _connect(pod: Object, runtime: KubeletApi, port: str | int) -> PodConnection | str:
    """A connection to a port of the pod, or why there is none."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await runtime.connect(pod, int(port))
    except (TrainyardError, TimeoutError, ValueError) as problem:
        return str(problem) or f"no connection to port {port} within {_CONNECT_SECONDS:g} s"


async def _serve(connection: SpdyConnection, pod: Object, runtime: KubeletApi) -> None:
    """Pair the error and data streams of each forwarded connection."""
    waiting: dict[str, SpdyStream] = {}
    async with asyncio.TaskGroup() as tasks:
        running: set[asyncio.Task[None]] = set()
        async for stream in connection.accept():
            number = stream.headers.get("requestid", "")
            other = waiting.pop(number, None)
            if other is None:
                waiting[number] = stream
                continue
            pair = {each.headers.get("streamtype", ""): each for each in (stream, other)}
            if {"data", "error"} <= pair.keys():
                task = tasks.create_task(_forward(pair["data"], pair["error"], pod, runtime))
                running.add(task)
                task.add_done_callback(running.discard)
        for task in running:
            task.cancel()


async def _forward(data: SpdyStream, error: SpdyStream, pod: Object, runtime: KubeletApi) -> None:
    port = data.headers.get("port", "")
    target = await _connect(pod, runtime, port)
    if isinstance(target, str):
        await error.write(target.encode())
        await error.close()
        await data.close()
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_upstream(data, target))
            tasks.create_task(_downstream(target, data))
    except* (ConnectionError, OSError) as broken:
        await error.write(f"lost the connection to port {port}: {broken.exceptions[0]}".encode())
    finally:
        await target.close()
        await error.close()
        await data.close()


async def _upstream(data: SpdyStream, target: PodConnection) -> None:
    while chunk := await data.read():
        await target.write(chunk)
    await target.write_eof()


async def _downstream(target: PodConnection, data: SpdyStream) -> None:
    while chunk := await target.read(_CHUNK):
        await data.write(chunk)
    await data.finish()


async def _serve_channels(
    socket: WebSocket, ports: Sequence[int], pod: Object, runtime: KubeletApi
) -> None:
    targets: dict[int, PodConnection] = {}
    reading: set[asyncio.Task[None]] = set()
    try:
        for channel, port in zip(range(0, 2 * len(ports), 2), ports, strict=True):
            for each in (channel, channel + 1):
                await socket.send(bytes([each]) + struct.pack("<H", port))
            target = await _connect(pod, runtime, port)
            if isinstance(target, str):
                await socket.send(bytes([channel + 1]) + target.encode())
            else:
                targets[channel] = target
                reading.add(asyncio.create_task(_send_channel(socket, channel, target)))
        while message := await socket.receive():
            found = targets.get(message[0])
            if found is not None:
                await found.write(message[1:])
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for target in targets.values():
            await target.close()


async def _send_channel(socket: WebSocket, channel: int, target: PodConnection) -> None:
    while data := await target.read(_CHUNK):
        await socket.send(bytes([channel]) + data)
    await socket.close()
