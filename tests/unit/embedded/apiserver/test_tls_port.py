"""The port that anybody on this machine can reach: nobody keeps it, or its memory, from others."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import orjson
import pytest

from tests.unit.embedded.apiserver.port import LIMIT_SECONDS, Port, head, serving
from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimits

MAPS = "/api/v1/namespaces/default/configmaps"
BODY = b'{"metadata":{"generateName":"m-"}}'
FEW = ConnectionLimits(
    connections=12,
    unauthenticated=6,
    per_user=8,
    buffered_bytes=1 << 20,
    head_seconds=0.5,
    body_seconds=0.5,
    idle_seconds=0.5,
)
PATIENT = ConnectionLimits(connections=12, unauthenticated=6, per_user=8, buffered_bytes=1 << 20)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    async with serving(tmp_path, PATIENT) as served:
        yield served


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Port]:
    async with serving(tmp_path, FEW) as served:
        yield served


def post(*headers: str) -> bytes:
    return head("POST", MAPS, "Content-Type: application/json", *headers)


async def test_a_head_that_never_ends_is_not_waited_for(hasty: Port) -> None:
    async with hasty.tls() as client:
        client.send(b"GET /version HTTP/1.1\r\nX: ")
        assert (await client.answer()).status == 408
        assert await client.is_closed()


async def test_who_says_nothing_after_connecting_is_sent_away(hasty: Port) -> None:
    async with hasty.tls() as client:
        assert await client.is_closed()


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_connection_that_never_becomes_secure_is_closed(
    port: Port, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr("trainyard.embedded.apiserver.http.listener._HANDSHAKE_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port.number)) as silent:
        silent.settimeout(60)
        silent.sendall(data)
        assert await asyncio.to_thread(_is_over, silent)


def _is_over(end: socket.socket) -> bool:
    try:
        while end.recv(1000):
            pass
    except ConnectionError:
        pass
    return True


async def test_a_body_that_trickles_is_not_waited_for(hasty: Port) -> None:
    async with hasty.tls() as client:
        client.send(post("Content-Length: 100") + b"{")
        answer = await client.answer()
        assert (answer.status, orjson.loads(answer.body)["reason"]) == (408, "Timeout")


async def test_an_idle_connection_is_closed_and_a_watch_is_not(hasty: Port) -> None:
    async with hasty.tls() as watcher, hasty.tls() as client:
        watcher.send(head("GET", f"{MAPS}?watch=1&timeoutSeconds=100"))
        await watcher.reader.readuntil(b"\r\n\r\n")
        assert (await client.ask(head("GET", "/version"))).status == 200
        assert await client.is_closed()
        await hasty.registry.create(
            "configmaps", {"metadata": {"name": "seen", "namespace": "default"}}
        )
        async with asyncio.timeout(120):
            assert b"seen" in await watcher.reader.readuntil(b"}\n\r\n")


async def test_a_large_body_is_refused_before_it_is_sent(port: Port) -> None:
    async with port.tls() as client:
        answer = await client.ask(post("Content-Length: 4000000"))
        assert (answer.status, orjson.loads(answer.body)["code"]) == (413, 413)


async def test_bodies_under_way_hold_a_bounded_amount_in_all(port: Port) -> None:
    half = post("Content-Length: 900000") + b"x" * 600_000
    async with port.tls() as first, port.tls() as second, port.unix() as other:
        first.send(half)
        second.send(half)
        answers = [asyncio.create_task(client.answer()) for client in (first, second)]
        done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = [task.result() for task in done]
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await other.ask(post(f"Content-Length: {len(BODY)}") + BODY)).status == 201
        for task in waiting:
            task.cancel()
        for client in (first, second):
            client.writer.transport.abort()
        await asyncio.gather(*(client.is_closed() for client in (first, second)))
        async with port.tls() as third:  # what the first two held is free again
            data = b'{"metadata":{"generateName":"m-"},"data":{"k":"' + b"x" * 600_000 + b'"}}'
            answer = await third.ask(post(f"Content-Length: {len(data)}") + data)
            assert answer.status == 201, answer.body


async def test_strangers_make_room_for_each_other_and_keep_nobody_out(port: Port) -> None:
    async with AsyncExitStack() as stack:
        known = await stack.enter_async_context(port.tls())
        assert (await known.ask(head("GET", "/version"))).status == 200
        unauthenticated = [await stack.enter_async_context(port.tls()) for _ in range(20)]
        assert await unauthenticated[0].is_closed()
        async with port.tls() as newcomer:
            assert (await newcomer.ask(head("GET", "/version"))).status == 200
        assert (await known.ask(head("GET", "/version"))).status == 200


async def test_one_person_has_so_many_connections_and_no_more(port: Port) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            client = await stack.enter_async_context(port.tls())
            assert (await client.ask(head("GET", "/version"))).status == 200
        async with port.tls() as ninth:
            answer = await ninth.ask(head("GET", "/version"))
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        async with port.unix() as other:  # the socket has a number of its own
            assert (await other.ask(head("GET", "/version"))).status == 200


async def test_requests_sent_ahead_wait_unread_and_others_have_their_turn(port: Port) -> None:
    async with port.unix() as greedy, port.unix() as other:
        greedy.send(head("GET", "/openapi/v3/api/v1") * 2_000)
        assert (await other.ask(head("GET", "/version"))).status == 200
        for _ in range(40):
            assert (await greedy.answer()).status == 200


async def test_all_requests_sent_ahead_are_answered_in_their_order(port: Port) -> None:
    async with port.unix() as client:
        data = b"".join(head("GET", f"/nothing/{n}") + b"\r\n" for n in range(500))
        client.send(data + post(f"Content-Length: {len(BODY)}") + BODY + head("GET", "/version"))
        statuses = [(await client.answer()).status for _ in range(502)]
        assert statuses == [404] * 500 + [201, 200]


async def test_a_watcher_that_reads_nothing_is_cut_off(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.embedded.apiserver.http.http_connection._DRAIN_SECONDS", 0.5)
    async with port.unix() as watcher:
        watcher.send(head("GET", f"{MAPS}?watch=1"))
        await watcher.reader.readuntil(b"\r\n\r\n")
        text = "x" * 100_000
        for number in range(40):
            metadata = {"name": f"m{number}", "namespace": "default"}
            await port.registry.create("configmaps", {"metadata": metadata, "data": {"k": text}})
        await asyncio.sleep(1.0)  # far beyond what it has to read something
        assert await watcher.is_closed()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Origin: https://evil.example"], 403),
        (["Origin: null"], 403),
        (["Origin: https://localhost:8001"], 200),
        (["Sec-Fetch-Site: cross-site", "Origin: http://127.0.0.1.evil.example"], 403),
        (["Sec-Fetch-Site: none"], 200),
        ([], 200),
    ],
)
async def test_pages_of_other_sites_are_refused(port: Port, lines: list[str], status: int) -> None:
    async with port.tls() as client:
        assert (await client.ask(head("GET", "/version", *lines))).status == status


async def test_a_name_that_leads_here_is_refused_to_a_browser(port: Port) -> None:
    data = head("GET", "/version", "Sec-Fetch-Site: none").replace(b"localhost", b"evil.example")
    async with port.tls() as client:
        assert (await client.ask(data)).status == 403


SERVER = """
import asyncio, sys
from pathlib import Path
import uvloop
from tests.unit.embedded.apiserver.port import serving

async def main():
    async with serving(Path(sys.argv[1])) as port:
        print(port.number, flush=True)
        await asyncio.Event().wait()

uvloop.run(main())
"""


async def test_what_connections_took_is_given_back(tmp_path: Path) -> None:
    """40 connections with most of a body each, and 40 that are broken off in their handshake."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            number = int(await process.stdout.readline())
        before = 0.0
        for _ in range(3):
            await _attack(number)
            async with asyncio.timeout(120):
                while before and _resident_mb(process.pid) > 1.2 * before:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            before = before or await _settled_mb(process.pid)
    finally:
        process.kill()
        await process.wait()


async def _attack(number: int) -> None:
    data = post("Content-Length: 3000000") + b"x" * 2_900_000
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE

    async def half(context: ssl.SSLContext | None) -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", number, ssl=context)
            writer.write(data)
            await asyncio.sleep(0.5)
            writer.transport.abort()

    await asyncio.gather(*(half(context) for _ in range(40) for context in (insecure, None)))


async def _settled_mb(pid: int) -> float:
    """After the first attack, once its memory was given back."""
    await asyncio.sleep(3)
    return _resident_mb(pid)


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
