"""Port-forward as the official Python and JavaScript clients speak it: WebSocket channels.

The n-th port asked for has two channels: 2n carries data, 2n + 1 a text when something fails;
the first message on each is the port's number.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence

from trainyard.local.apiserver.http import Request, Wire
from trainyard.local.apiserver.websocket import WebSocket
from trainyard.local.failures import bad_request
from trainyard.local.runtime import Connection, PodRuntime
from trainyard.local.storage.journal import Object
from trainyard.schema.errors import TrainyardError

_CHUNK = 32 << 10
_CONNECT_SECONDS = 10.0


def ports(request: Request) -> list[int]:
    """The ports that a request asks for; raises BadRequest."""
    texts = [text for key, value in request.queries if key == "ports" for text in value.split(",")]
    if not texts or not all(text.isdigit() and 0 < int(text) < 1 << 16 for text in texts):
        raise bad_request(f"ports must be numbers from 1 to 65535, not {texts}")
    return [int(text) for text in texts]


def server(
    numbers: Sequence[int], pod: Object, runtime: PodRuntime
) -> Callable[[Wire], Awaitable[None]]:
    """What serves the connection after the upgrade."""

    async def run(wire: Wire) -> None:
        socket = WebSocket(wire)
        targets: dict[int, Connection] = {}
        reading: set[asyncio.Task[None]] = set()
        try:
            for number, port in enumerate(numbers):
                target = await _open(socket, number, port, pod, runtime)
                if target is not None:
                    targets[2 * number] = target
                    reading.add(asyncio.create_task(_downstream(socket, 2 * number, target)))
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

    return run


async def _open(
    socket: WebSocket, number: int, port: int, pod: Object, runtime: PodRuntime
) -> Connection | None:
    for channel in (2 * number, 2 * number + 1):
        await socket.send(bytes([channel]) + struct.pack("<H", port))
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await runtime.connect(pod, port)
    except (TrainyardError, TimeoutError) as problem:
        text = str(problem) or f"no connection to port {port} within {_CONNECT_SECONDS:g} s"
        await socket.send(bytes([2 * number + 1]) + text.encode())
        return None


async def _downstream(socket: WebSocket, channel: int, target: Connection) -> None:
    while data := await target.read(_CHUNK):
        await socket.send(bytes([channel]) + data)
    await socket.close()
