"""`kubectl port-forward`: connections into a pod over SPDY streams, plain or inside a WebSocket."""

from __future__ import annotations

import asyncio

from trainyard.local.apiserver import websocket
from trainyard.local.apiserver.http import Request, Upgrade, Wire
from trainyard.local.apiserver.spdy import Duplex, SpdyConnection, SpdyStream
from trainyard.local.apiserver.websocket import WebSocket, WebSocketDuplex
from trainyard.local.failures import bad_request
from trainyard.local.runtime import Connection, PodRuntime
from trainyard.local.storage.journal import Object
from trainyard.schema.errors import TrainyardError

_PROTOCOL = "portforward.k8s.io"
_TUNNEL = f"SPDY/3.1+{_PROTOCOL}"
_CHANNELS = "v4.channel.k8s.io"
_CHUNK = 32 << 10
_CONNECT_SECONDS = 10.0


def respond(request: Request, pod: Object, runtime: PodRuntime) -> Upgrade:
    """Switch protocols and serve whatever connections the client makes."""
    name = pod["metadata"]["name"]
    if (pod.get("status") or {}).get("phase") != "Running":
        raise bad_request(f"unable to forward port because pod {name} is not running")
    tunnelled = websocket.wanted(request)
    offers = websocket.offered(request)
    if tunnelled and _TUNNEL not in offers:
        if _CHANNELS not in offers:
            raise bad_request(f"none of the WebSocket protocols {offers} is spoken here")
        from trainyard.local.apiserver import forwarding_channels

        return Upgrade(
            websocket.accept_headers(request, _CHANNELS),
            forwarding_channels.server(forwarding_channels.ports(request), pod, runtime),
        )

    async def run(wire: Wire) -> None:
        duplex: Duplex = WebSocketDuplex(WebSocket(wire)) if tunnelled else wire
        await _serve(SpdyConnection(duplex), pod, runtime)

    if tunnelled:
        return Upgrade(websocket.accept_headers(request, _TUNNEL), run)
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", _PROTOCOL),
    ]
    return Upgrade(headers, run)


async def _serve(connection: SpdyConnection, pod: Object, runtime: PodRuntime) -> None:
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


async def _forward(data: SpdyStream, error: SpdyStream, pod: Object, runtime: PodRuntime) -> None:
    port = data.headers.get("port", "")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            target = await runtime.connect(pod, int(port))
    except (TrainyardError, TimeoutError, ValueError) as problem:
        text = str(problem) or f"no connection to port {port} within {_CONNECT_SECONDS:g} s"
        await error.write(text.encode())
        await error.finish()
        await data.finish()
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_upstream(data, target))
            tasks.create_task(_downstream(target, data))
    except* (ConnectionError, OSError) as broken:
        await error.write(f"lost the connection to port {port}: {broken.exceptions[0]}".encode())
    finally:
        await target.close()
        await error.finish()
        await data.finish()


async def _upstream(data: SpdyStream, target: Connection) -> None:
    while chunk := await data.read():
        await target.write(chunk)
    await target.write_eof()


async def _downstream(target: Connection, data: SpdyStream) -> None:
    while chunk := await target.read(_CHUNK):
        await data.write(chunk)
    await data.finish()
