"""What a gRPC server is asked for its health, against a real one and against what is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from trainyard.embedded.node.containers import grpc_health

_SERVER = """
import grpc, sys, threading
from concurrent.futures import ThreadPoolExecutor
answers = {
    b"": b"\\x08\\x01",
    b"\\x0a\\x03bad": b"\\x08\\x02",
    b"\\x0a\\x05later": b"",
    b"\\x0a\\xac\\x02" + b"s" * 300: b"\\x08\\x01",
}
def check(request, context):
    if request not in answers:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return answers[request]
server = grpc.server(ThreadPoolExecutor(1))
handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(sys.argv[1], handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
threading.Event().wait()
"""
"""SERVING; of the service `bad` NOT_SERVING, of `later` UNKNOWN, of one of a long name SERVING."""


@contextmanager
def server(name: str = "grpc.health.v1.Health") -> Iterator[int]:
    """One that tells the health of some services; its port. A process of its own, since whoever has
    imported grpc forks no more."""
    if find_spec("grpc") is None:
        pytest.skip("grpc is not installed")
    command = [sys.executable, "-c", _SERVER, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def asked(port: int, service: str = "") -> str:
    """What comes of asking."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(120):
            return await grpc_health.check_health(reader, writer, f"127.0.0.1:{port}", service)
    finally:
        writer.close()


async def test_what_a_server_tells_of_its_services() -> None:
    with server() as port:
        assert await asked(port) == ""
        assert await asked(port, "s" * 300) == ""
        assert await asked(port, "bad") == 'service unhealthy (responded with "NOT_SERVING")'
        assert await asked(port, "later") == 'service unhealthy (responded with "UNKNOWN")'
        expected = "the server does not tell the health of other (grpc.health.v1.Health)"
        assert await asked(port, "other") == expected


async def test_a_server_without_the_method_is_not_well() -> None:
    with server("some.other.Service") as port:
        answer = await asked(port)
    assert answer == "the server does not tell the health (grpc.health.v1.Health)"


_ODD = {
    "it hangs up": b"",
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "half a frame": b"\0\0\x05\0\1\0\0\0\1ab",
    "GOAWAY": b"\0\0\x08\7\0\0\0\0\0" + bytes(8),
    "no end of frames": b"\0\0\0\x09\0\0\0\0\1" * 1000,
    "a frame too long": b"\xff\xff\xff\0\0\0\0\0\1",
    "padding beyond its frame": b"\0\0\2\0\x08\0\0\0\1\xffa",
}


@pytest.mark.parametrize("name", _ODD)
async def test_what_is_no_grpc_server_is_not_well(name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        writer.write(_ODD[name])
        writer.close()

    odd = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with odd:
        assert await asked(odd.sockets[0].getsockname()[1]) == "the server does not speak gRPC"


async def test_pings_and_settings_are_answered_and_padding_is_left_out() -> None:
    seen = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await reader.readexactly(24)
        writer.write(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\6\0\0\0\0\0" + b"12345678")
        while b"12345678" not in seen:
            seen += await reader.read(100)
        message = b"\0\0\0\0\2\x08\1"
        writer.write(b"\0\0\x0a\0\x09\0\0\0\1\2" + message + b"\0\0")
        writer.close()

    pinging = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with pinging:
        assert await asked(pinging.sockets[0].getsockname()[1]) == ""
    assert b"\0\0\0\4\1\0\0\0\0" in seen
    assert b"\0\0\x08\6\1\0\0\0\0" + b"12345678" in seen
