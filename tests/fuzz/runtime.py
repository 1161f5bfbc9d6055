"""A node that runs nothing: its commands and ports send back what they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from trainyard.embedded.kubelet_api import OutputChunk
from trainyard.podruntime.log_reader import LogOptions
from trainyard.schema.errors import TrainyardError


class Echo:
    """A command, or a connection: whatever comes in goes out again."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def output(self) -> AsyncIterator[OutputChunk]:
        while data := await self._arrived.get():
            yield OutputChunk(1, data)

    async def read(self, limit: int) -> bytes:
        return (await self._arrived.get())[:limit]

    async def write(self, data: bytes) -> None:
        self._arrived.put_nowait(data)

    async def close_stdin(self) -> None:
        self._arrived.put_nowait(b"")

    write_eof = close_stdin

    async def resize(self, columns: int, rows: int) -> None:
        pass

    async def wait(self) -> int:
        return 0

    async def close(self) -> None:
        self._arrived.put_nowait(b"")


class EchoRuntime:
    """The node side of logs, exec and port-forward."""

    async def logs(
        self, pod: dict[str, Any], container: str, options: LogOptions, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        if options.tail == 5:
            raise TrainyardError("there is no log")
        yield b"line\n"

    async def exec(
        self,
        pod: dict[str, Any],
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> Echo:
        return Echo()

    async def attach(self, pod: dict[str, Any], container: str, *, stdin: bool = False) -> Echo:
        return Echo()

    async def connect(self, pod: dict[str, Any], port: int) -> Echo:
        return Echo()
