"""A server on a TLS port and a Unix socket, and clients that send bytes as they like."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.apiserver.auth import certificates
from trainyard.embedded.apiserver.auth.request_identity import Authenticator
from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimits
from trainyard.embedded.registry import Registry

TOKEN = "a-token-of-some-length"
LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        """The next answer, which says how long it is."""
        async with asyncio.timeout(LIMIT_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            pairs = (line.split(": ", 1) for line in lines)
            headers = {name.lower(): value for name, value in pairs}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Waits until the server has closed the connection."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while await self.reader.read(1 << 16):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


@dataclass
class Port:
    """The server under test."""

    server: ApiServer
    registry: Registry
    number: int
    socket: Path
    context: ssl.SSLContext

    @asynccontextmanager
    async def tls(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, ssl=self.context, server_hostname="localhost"
        )
        yield Client(reader, writer)
        writer.transport.abort()

    @asynccontextmanager
    async def unix(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        yield Client(reader, writer)
        writer.transport.abort()


@asynccontextmanager
async def serving(
    folder: Path, limits: ConnectionLimits | None = None, authenticator: Authenticator | None = None
) -> AsyncIterator[Port]:
    """A server with an empty registry."""
    made = certificates.ensure(folder)
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    server = ApiServer(registry, authenticator=authenticator, limits=limits)
    await server.serve_unix(folder / "api.sock")
    number = await server.serve_tls(0, certificate=made.certificate, key=made.key, token=TOKEN)
    context = ssl.create_default_context(cafile=str(made.authority))
    try:
        yield Port(server, registry, number, folder / "api.sock", context)
    finally:
        await server.close()
        await registry.close()


def head(method: str, path: str, *headers: str, token: str = TOKEN) -> bytes:
    """The head of a request by the holder of a token."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
