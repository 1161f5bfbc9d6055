"""Exec and port-forward as the official clients speak them: WebSocket with v4 channels."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.embedded.kubectl import HostRuntime, add_running_pod
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.apiserver.pod_access import exec_streams
from trainyard.embedded.registry import Registry

POD = "http://x/api/v1/namespaces/default/pods/p"
V4 = ("v4.channel.k8s.io",)
CLOSED = b"\x88\x02\x03\xe8"
"""The server's frame that says good-bye."""
FAILED = b"command terminated with non-zero exit code: exit status 4"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    await add_running_pod(registry, "p", "main")
    server = ApiServer(registry, HostRuntime())
    await server.serve_unix(tmp_path / "api.sock")
    connector = aiohttp.UnixConnector(str(tmp_path / "api.sock"))
    async with aiohttp.ClientSession(connector=connector) as made:
        yield made
    await server.close()
    await registry.close()


async def channels(socket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """Everything that arrives on each channel until the server closes."""
    found: dict[int, bytes] = {}
    async with asyncio.timeout(120):
        async for message in socket:
            found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
    return found


async def test_exec_tells_output_and_exit_code_on_their_channels(
    session: aiohttp.ClientSession,
) -> None:
    query = "command=sh&command=-c&command=echo+out;echo+err>%262;exit+4&stdout=true&stderr=true"
    async with session.ws_connect(f"{POD}/exec?{query}", protocols=V4) as socket:
        found = await channels(socket)
    assert (found[1], found[2]) == (b"out\n", b"err\n")
    assert orjson.loads(found[3])["details"]["causes"][0]["message"] == "4"


async def test_the_first_protocol_tells_of_a_failure_in_words(
    session: aiohttp.ClientSession,
) -> None:
    """As one does that names none."""
    for protocols in (("channel.k8s.io",), ()):
        for code, told in ((4, FAILED), (0, b"")):
            query = f"command=sh&command=-c&command=echo+out;exit+{code}&stdout=true"
            async with session.ws_connect(f"{POD}/exec?{query}", protocols=protocols) as socket:
                found = await channels(socket)
            assert (found[1], found.get(3, b"")) == (b"out\n", told)


async def test_who_still_writes_when_the_command_has_ended_reads_how_it_did(
    session: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an error of the write may hide it: "the connection broke off", once in a hundred."""
    monkeypatch.setattr(exec_streams, "_CLIENT_CLOSE_SECONDS", 120.0)
    query = "command=sh&command=-c&command=exit+4&stdin=true&stdout=true"
    head = (
        f"GET {POD.removeprefix('http://x')}/exec?{query} HTTP/1.1\r\nHost: x\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: {V4[0]}\r\n\r\n"
    )

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(120)
            end.connect(str(tmp_path / "api.sock"))
            end.sendall(head.encode())
            while CLOSED not in end.recv(1 << 16, socket.MSG_PEEK):
                time.sleep(0.01)
            time.sleep(0.2)
            end.sendall(b"\x82\x82\0\0\0\0\0x")  # to its input
            told = end.recv(1 << 16)
            end.sendall(b"\x88\x80\0\0\0\0")
            assert end.recv(1 << 16) == b""  # and the server says good-bye once
            return told

    assert b'"reason":"ExitCode","message":"4"' in await asyncio.to_thread(ask)


@pytest.mark.parametrize(("asked", "first"), [("stdout", 1), ("stderr", 2), ("stdin", 3)])
async def test_exec_greets_on_one_channel_alone(
    session: aiohttp.ClientSession, asked: str, first: int
) -> None:
    """A client that reads a Status from every message of channel 3 fails at an empty one."""
    query = f"command=true&{asked}=true"
    async with session.ws_connect(f"{POD}/exec?{query}", protocols=V4) as socket:
        async with asyncio.timeout(120):
            messages = [(each.data[0], each.data[1:]) async for each in socket]
    assert [number for number, data in messages if not data] == [first]
    assert messages[-1][0] == 3
    assert orjson.loads(messages[-1][1])["status"] == "Success"


async def test_exec_answers_pings_and_takes_input(session: aiohttp.ClientSession) -> None:
    query = "command=head&command=-n1&stdin=true&stdout=true"
    async with session.ws_connect(f"{POD}/exec?{query}", protocols=V4) as socket:
        await socket.ping()
        await socket.send_bytes(b"\x00" + b"x" * 100_000 + b"\n")
        found = await channels(socket)
    assert found[1] == b"x" * 100_000 + b"\n"
    assert orjson.loads(found[3])["status"] == "Success"


@pytest.mark.parametrize("query", ["", "?command=true&container=nope"])
async def test_exec_that_makes_no_sense_is_refused_before_the_switch(
    session: aiohttp.ClientSession, query: str
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(f"{POD}/exec{query}", protocols=V4)
    assert refused.value.status == 400


@asynccontextmanager
async def shouting_server() -> AsyncIterator[int]:
    """Sends back the first thing that it gets in capitals, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(1000)).upper())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("protocols", [V4, ()], ids=["v4", "unnamed"])
async def test_port_forward_carries_a_connection(
    session: aiohttp.ClientSession, protocols: tuple[str, ...]
) -> None:
    async with shouting_server() as port:
        url = f"{POD}/portforward?ports={port}"
        async with session.ws_connect(url, protocols=protocols) as socket:
            await socket.send_bytes(b"\x00hello")
            found = await channels(socket)
    assert found == {0: struct.pack("<H", port) + b"HELLO", 1: struct.pack("<H", port)}


async def test_port_forward_says_on_the_error_channel_what_fails(
    session: aiohttp.ClientSession,
) -> None:
    async with shouting_server() as port:
        pass
    async with (
        session.ws_connect(f"{POD}/portforward?ports={port}", protocols=V4) as socket,
        asyncio.timeout(120),
    ):
        messages = [await socket.receive_bytes() for _ in range(3)]
    assert messages[2] == b"\x01" + f"nothing listens on port {port}".encode()


@pytest.mark.parametrize("ports", ["", "?ports=0", "?ports=http"])
async def test_port_forward_needs_port_numbers(session: aiohttp.ClientSession, ports: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(f"{POD}/portforward{ports}", protocols=V4)
    assert refused.value.status == 400
