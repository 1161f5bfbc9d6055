"""kubectl exec and port-forward: SPDY from the old one, WebSocket from the new one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.embedded.kubectl import Cluster, running_pod

PAYLOAD = b"".join(hashlib.sha256(bytes([n % 251, n // 251])).digest() for n in range(20_000))


async def test_output_and_exit_code_reach_the_caller(cluster: Cluster) -> None:
    await running_pod(cluster)
    process = await cluster.start("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert out == b"out\n"
    assert err.startswith(b"err\n")
    assert process.returncode == 3


async def test_standard_input_is_passed_on_to_its_end(cluster: Cluster) -> None:
    await running_pod(cluster)
    process = await cluster.start("exec", "-i", "p", "--", "sha256sum", stdin=PAYLOAD)
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode().split()[0] == hashlib.sha256(PAYLOAD).hexdigest()


async def test_much_output_arrives_whole(cluster: Cluster) -> None:
    await running_pod(cluster)
    (cluster.folder / "payload").write_bytes(PAYLOAD)
    process = await cluster.start("exec", "p", "--", "cat", str(cluster.folder / "payload"))
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    assert out == PAYLOAD


async def test_a_command_ends_with_its_client(cluster: Cluster) -> None:
    await running_pod(cluster)
    process = await cluster.start("exec", "p", "--", "sh", "-c", "echo up; exec sleep 1000")
    assert process.stdout is not None
    async with asyncio.timeout(120):
        assert await process.stdout.readline() == b"up\n"
        process.kill()
        await process.communicate()
        assert await cluster.runtime.commands[0].wait() != 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("p", "--", "no-such-command"), "no-such-command: not found"),
        (("p", "-c", "nope", "--", "true"), "nope"),
        (("absent", "--", "true"), "not found"),
    ],
    ids=["command", "container", "pod"],
)
async def test_what_cannot_be_run_is_said(
    cluster: Cluster, arguments: tuple[str, ...], expected: str
) -> None:
    await running_pod(cluster)
    assert expected in await cluster("exec", *arguments, fails=True)


@asynccontextmanager
async def echo_server() -> AsyncIterator[int]:
    """A server that sends back in capitals what it gets, to the end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_ports_are_forwarded_for_many_connections(cluster: Cluster) -> None:
    await running_pod(cluster)
    async with echo_server() as port:
        process = await cluster.start("port-forward", "p", f":{port}", "--address", "127.0.0.1")
        assert process.stdout is not None
        try:
            async with asyncio.timeout(120):
                line = (await process.stdout.readline()).decode()
                local = int(line.split("127.0.0.1:")[1].split()[0])

                async def talk(number: int) -> bytes:
                    reader, writer = await asyncio.open_connection("127.0.0.1", local)
                    writer.write(f"hello {number} ".encode() * 2000)
                    writer.write_eof()
                    data = await reader.read()
                    writer.close()
                    return data

                answers = await asyncio.gather(*(talk(number) for number in range(5)))
            assert answers == [f"HELLO {n} ".encode() * 2000 for n in range(5)]
        finally:
            process.kill()
            await process.communicate()


async def test_a_port_nobody_listens_on_is_said(cluster: Cluster) -> None:
    await running_pod(cluster)
    async with echo_server() as port:
        free = port
    process = await cluster.start("port-forward", "p", f":{free}", "--address", "127.0.0.1")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode()
            local = int(line.split("127.0.0.1:")[1].split()[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            assert await reader.read() == b""
            writer.close()
            told = (await process.stderr.readline()).decode()
        assert f"nothing listens on port {free}" in told
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("command", ["exec p -- true", "attach p", "port-forward p :80"])
async def test_a_pod_that_has_no_node_yet_cannot_be_reached(cluster: Cluster, command: str) -> None:
    container = {"name": "main", "image": "python"}
    spec = {"containers": [container]}
    await cluster.registry.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    # Of what is not running port-forward and attach know by themselves; they are asked to try.
    status = {"phase": "Running"}
    await cluster.registry.update(
        "pods", "default", "p", lambda copy: {**copy, "status": status}, subresource="status"
    )
    assert "pod p does not have a host assigned" in await cluster(*command.split(), fails=True)
