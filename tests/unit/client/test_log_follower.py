"""Following a container's log although its stream breaks off, over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.client.objects import pod, pod_name
from trainyard.client.kept_logs import reader
from trainyard.client.log_streams import GONE, LONGEST_LINE, Kept, LogFollower, LogRequest, Stamped
from trainyard.client.pod_views import PodView
from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.podruntime.log_reader import MISSING

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
GONE_POD = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

LOG = [
    ("2026-08-02T12:00:00.000000001Z", b"line 0"),
    ("2026-08-02T12:00:00.100000000Z", b"line 1"),  # these three were written together
    ("2026-08-02T12:00:00.100000000Z", b"line 2"),
    ("2026-08-02T12:00:00.100000000Z", b"line 3"),
    ("2026-08-02T12:00:00.200000000Z", b""),
    ("2026-08-02T12:00:01.000000000Z", b"line 5"),
]
TEXT = b"".join(line + b"\n" for _, line in LOG)
SIZE = sum(len(stamp) + 1 + len(line) + 1 for stamp, line in LOG)


class Part(NamedTuple):
    """A stream of the log that breaks off after so many bytes; None: that is whole."""

    size: int | None = None
    first: int = 0
    """The first line that is kept by then."""


def answer(part: Part, asked: dict[str, list[str]]) -> bytes:
    """As a kubelet does: the time from which on is rounded down to whole seconds."""
    since = asked.get("sinceTime", [""])[0].partition(".")[0]
    lines = [(stamp, line) for stamp, line in LOG[part.first :] if stamp >= since]
    if "tailLines" in asked:
        lines = lines[-int(asked["tailLines"][0]) :]
    text = b"".join(stamp.encode() + b" " + line + b"\n" for stamp, line in lines)[: part.size]
    end = b"0\r\n\r\n" if part.size is None else b""
    return HEAD + (b"%x\r\n%s\r\n" % (len(text), text) if text else b"") + end


@asynccontextmanager
async def serving(folder: Path, answers: Sequence[Part | bytes]) -> AsyncIterator[Client]:
    """A server that gives one answer to each request, the last one again and again."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked = parse_qs(urlsplit(head.split(b" ")[1].decode()).query)
        chosen = left.pop(0) if len(left) > 1 else left[0]
        writer.write(chosen if isinstance(chosen, bytes) else answer(chosen, asked))
        await writer.drain()
        writer.close()

    socket = str(folder / "api.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, Client.unix(socket) as client:
        yield client


async def followed(
    folder: Path,
    answers: Sequence[Part | bytes],
    request: LogRequest | None = None,
    kept: Kept | None = None,
) -> tuple[bytes, list[KubeError]]:
    """What a follower tells of the log of one container, and of its errors."""
    chunks: list[bytes] = []
    errors: list[KubeError] = []
    request = request or LogRequest(follow=True)
    async with serving(folder, answers) as client:
        logs = LogFollower(
            client, request, lambda _, __, lines: chunks.append(lines), errors.append, kept
        )
        async with asyncio.TaskGroup() as group:
            running = PodView(pod(states={"pytorch": {"running": {}}}))
            logs.begin(group, running, ["pytorch"])
            logs.begin(group, running, ["pytorch"])  # each is streamed once
    return b"".join(chunks), errors


@pytest.mark.parametrize("cut", [1, 30, 38, 40, 80, 110, 120, 160, 190, SIZE - 1, SIZE])
async def test_a_stream_that_breaks_off_is_taken_up_where_it_was(tmp_path: Path, cut: int) -> None:
    assert await followed(tmp_path, [Part(cut), Part()]) == (TEXT, [])


async def test_it_may_break_off_again_and_again_and_a_server_may_fail_between(
    tmp_path: Path,
) -> None:
    answers = [Part(100), BROKEN, Part(0), Part(5), Part(170), Part()]
    assert await followed(tmp_path, answers) == (TEXT, [])


async def test_times_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    text, _ = await followed(tmp_path, [Part(100), Part()], LogRequest(True, timestamps=True))
    assert text.splitlines() == [stamp.encode() + b" " + line for stamp, line in LOG]


@pytest.mark.parametrize("cut", [0, 1, 40, 100, SIZE - 1])
async def test_what_is_kept_of_a_pod_that_was_deleted_under_its_reader_is_told(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "pods" / f"default_{pod_name('worker-0')}_pod-worker-0" / "pytorch" / "0.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(b"%s stdout F %s\n" % (at.encode(), line) for at, line in LOG))
    assert await followed(tmp_path, [Part(cut), GONE_POD], kept=reader(tmp_path)) == (TEXT, [])


@pytest.mark.parametrize("kept", [2, 3, 4, 5])
async def test_what_was_rotated_away_meanwhile_is_told_to_be_missing(
    tmp_path: Path, kept: int
) -> None:
    """The first stream ends after line 1. What is left of the lines of its time is known."""
    text, _ = await followed(tmp_path, [Part(80), Part(first=kept)])
    lines = [line for _, line in LOG]
    if kept < 4:  # lines of the same time: which of them they are cannot be told
        assert set(text.splitlines()) <= set(lines)
    else:
        assert text.splitlines() == [*lines[:2], MISSING.encode(), *lines[kept:]]


async def test_of_a_pod_that_is_deleted_meanwhile_all_is_told_that_was_read(tmp_path: Path) -> None:
    missing = GONE.encode() + b"\n"
    assert await followed(tmp_path, [Part(69), GONE_POD]) == (b"line 0\n\n" + missing, [])
    assert await followed(tmp_path, [Part(72), GONE_POD]) == (b"line 0\nlin\n" + missing, [])
    assert await followed(tmp_path, [Part(50), GONE_POD]) == (b"line 0\n" + missing, [])


async def test_the_end_of_a_log_is_taken_up_too(tmp_path: Path) -> None:
    request = LogRequest(follow=True, tail=5)
    text, errors = await followed(tmp_path, [Part(80), Part()], request)
    assert (text, errors) == (TEXT.partition(b"\n")[2], [])


async def test_a_line_without_an_end_is_cut_and_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = b"x" * (3 * LONGEST_LINE)
    monkeypatch.setattr("tests.unit.client.test_log_follower.LOG", [(LOG[0][0], long)])
    text, _ = await followed(tmp_path, [Part(LONGEST_LINE + 100), Part()])
    lines = text.splitlines()
    assert b"".join(lines) == long
    assert max(map(len, lines)) <= LONGEST_LINE


@pytest.mark.parametrize(("state", "is_whole"), [("terminated", True), ("running", False)])
async def test_a_log_that_is_slow_to_read_is_read_to_its_end_if_it_has_one(
    tmp_path: Path, state: str, is_whole: bool
) -> None:
    """Longer than a container that goes on is waited for."""
    patience, pause = 0.5, 0.2

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            for stamp, line in LOG:
                text = stamp.encode() + b" " + line + b"\n"
                writer.write(b"%x\r\n%s\r\n" % (len(text), text))
                await asyncio.sleep(pause)
            writer.write(b"0\r\n\r\n")
        finally:
            writer.close()
            served.set()

    chunks: list[bytes] = []
    socket = str(tmp_path / "api.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, Client.unix(socket) as client:
        request = LogRequest(follow=True)
        logs = LogFollower(
            client, request, lambda _, __, lines: chunks.append(lines), lambda _: None
        )
        async with asyncio.TaskGroup() as group:
            ended = {state: {"exitCode": 0}}
            logs.begin(group, PodView(pod(states={"pytorch": ended})), ["pytorch"])
            await logs.drain(patience)
        await served.wait()
    assert (b"".join(chunks) == TEXT) is is_whole


BAR = (LOG[-1][0], b"\r 10%|#  |\r 50%|## |\r 90%|###|")  # of the time of the line before


@pytest.mark.parametrize("keeps_times", [False, True])
def test_the_line_that_is_being_written_is_seen_growing_and_is_never_an_old_one(
    keeps_times: bool,
) -> None:
    """Wherever the stream breaks off, and from whichever line on it is repeated."""
    log = [*LOG, BAR]
    stream = [stamp.encode() + b" " + line + b"\n" for stamp, line in log]
    expected = stream if keeps_times else [line + b"\n" for _, line in log]
    whole = b"".join(stream)
    for cut in range(len(whole)):
        reader, lines, seen = Stamped(keeps_times=keeps_times), b"", set()
        text = whole[:cut]
        for first in (0, 4):
            for byte in text:
                lines += reader.feed(bytes([byte]))
                if growing := reader.unfinished(0):
                    at = lines.count(b"\n")
                    assert lines == b"".join(expected[:at])
                    assert expected[at].startswith(growing)
                    seen.add(at)
            first = first if reader.since and reader.since >= log[4][0] else 0
            reader.begin_again()
            text = b"".join(stream[first:])
        assert len(log) - 1 in seen
        assert lines == b"".join(expected)


def test_of_a_line_that_grows_the_end_can_be_had_alone() -> None:
    reader = Stamped(keeps_times=False)
    reader.feed(b"%s %s" % (BAR[0].encode(), BAR[1]))
    assert reader.unfinished(-4) == BAR[1][-4:]
    assert reader.unfinished(len(BAR[1]) - 4) == BAR[1][-4:]
    assert reader.unfinished(-1000) == BAR[1]


async def test_a_follower_shows_the_line_that_grows(tmp_path: Path) -> None:
    seen: list[bytes] = []
    half = len(LOG[0][0]) + 3
    async with serving(tmp_path, [Part(half), Part()]) as client:
        request = LogRequest(follow=True)
        logs = LogFollower(
            client,
            request,
            lambda *_: None,
            lambda _: None,
            grow=lambda _, __, line: seen.append(line(0)),
        )
        async with asyncio.TaskGroup() as group:
            logs.begin(group, PodView(pod(states={"pytorch": {"running": {}}})), ["pytorch"])
    assert seen[0] == b"li"
