"""Following a container's log although its stream breaks off, over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.client.objects import pod
from trainyard.client.logs import LogFollower, LogRequest
from trainyard.client.pods import PodView
from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError

LOG = b"".join(b"line %d\n" % number for number in range(6))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def answer(text: bytes, *, is_whole: bool) -> bytes:
    """The log from its beginning, as far as the connection lives."""
    end = b"0\r\n\r\n" if is_whole else b""
    return HEAD + b"%x\r\n%s\r\n" % (len(text), text) + end


@asynccontextmanager
async def serving(folder: Path, answers: list[bytes]) -> AsyncIterator[Client]:
    """A server that gives one answer to each request, the last one again and again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0) if len(answers) > 1 else answers[0])
        await writer.drain()
        writer.close()

    socket = str(folder / "api.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, Client.unix(socket) as client:
        yield client


async def followed(
    folder: Path, answers: list[bytes], request: LogRequest
) -> tuple[bytes, list[KubeError]]:
    """What a follower tells of the log of one container, and of its errors."""
    told: list[bytes] = []
    errors: list[KubeError] = []
    async with serving(folder, answers) as client:
        logs = LogFollower(client, request, lambda _, __, lines: told.append(lines), errors.append)
        async with asyncio.TaskGroup() as group:
            running = PodView(pod(states={"pytorch": {"running": {}}}))
            logs.begin(group, running, ["pytorch"])
            logs.begin(group, running, ["pytorch"])  # each is streamed once
    return b"".join(told), errors


@pytest.mark.parametrize("cut", [1, 9, 10, 14, len(LOG) - 1])
async def test_a_stream_that_breaks_off_is_taken_up_where_it_was(tmp_path: Path, cut: int) -> None:
    answers = [answer(LOG[:cut], is_whole=False), answer(LOG, is_whole=True)]
    assert await followed(tmp_path, answers, LogRequest(follow=True)) == (LOG, [])


async def test_it_may_break_off_again_and_again_and_a_server_may_fail_between(
    tmp_path: Path,
) -> None:
    parts = [answer(LOG[:cut], is_whole=False) for cut in (10, 5, 20)]
    answers = [parts[0], BROKEN, *parts[1:], answer(LOG, is_whole=True)]
    assert await followed(tmp_path, answers, LogRequest(follow=True)) == (LOG, [])


async def test_of_a_pod_that_is_deleted_meanwhile_all_is_told_that_was_read(tmp_path: Path) -> None:
    answers = [answer(LOG[:10], is_whole=False), GONE]
    assert await followed(tmp_path, answers, LogRequest(follow=True)) == (LOG[:10] + b"\n", [])


async def test_the_end_of_a_log_cannot_be_taken_up(tmp_path: Path) -> None:
    """It begins elsewhere each time."""
    answers = [answer(LOG[:14], is_whole=False), answer(LOG, is_whole=True)]
    text, [error] = await followed(tmp_path, answers, LogRequest(follow=True, tail=2))
    assert text == LOG[:14]
    assert "broke off" in str(error)
