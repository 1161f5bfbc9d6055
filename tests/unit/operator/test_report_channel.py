"""The pods' channel over real connections: who is let in, and what nobody may do with it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trainyard.operator.channel import report_http
from trainyard.operator.channel.channel_ca import CA, ChannelCA, issue_channel_ca
from trainyard.operator.channel.report_channel import ReportChannel, ReportedJob
from trainyard.operator.channel.report_intake import ReportIntake
from trainyard.operator.channel.trainer_status import BadReport

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = ["127.0.0.1", "trainyard.example.svc"]
WAIT = 60.0
PATH = "/apis/batch.tensorstack.dev/v1beta1/namespaces/lab/pytorchtrainingjobs/{}/status?pod={}"
REPORT = {"trainerStatus": {"progressPercentage": 12, "metrics": [{"name": "loss", "value": "1"}]}}


@dataclass
class FakeController:
    """Two jobs, of which one has ended."""

    is_working: bool = True
    received: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    left: int = 1000

    def find_job(self, plural: str, namespace: str, name: str, pod: str) -> ReportedJob | None:
        if (plural, namespace) != ("pytorchtrainingjobs", "lab") or name not in ("a", "b"):
            return None
        return ReportedJob(f"uid-{name}", name == "b", pod == f"{name}-0")

    def allows(self, uid: str, pod: str) -> bool:
        self.left -= 1
        return self.left >= 0

    def receive(self, uid: str, pod: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if "trainerStatus" not in body:
            raise BadReport("trainerStatus: missing")
        self.received.append((uid, pod, body))
        return body


@dataclass
class ServedChannel:
    """A channel that is served, and a client's way to it."""

    controller: FakeController
    ca: ChannelCA
    address: tuple[str, int]
    context: ssl.SSLContext

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address, ssl=self.context)

    async def say(self, data: bytes) -> tuple[int, dict[str, Any], str]:
        """Status, body and headers of the answer to raw bytes."""
        reader, writer = await self.open()
        async with asyncio.timeout(WAIT):
            writer.write(data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
            body = await reader.readexactly(length)
        writer.close()
        return int(head.split()[1]), json.loads(body), head

    async def post(
        self, body: bytes, *, name: str = "a", pod: str = "a-0", token: str = "", more: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        token = token or self.ca.token(f"uid-{name}")
        head = f"POST {PATH.format(name, pod)} HTTP/1.1\r\nHost: x\r\n{more}"
        head += f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        return await self.say(head.encode() + body)


@asynccontextmanager
async def served(authority: ChannelCA | None = None, port: int = 0) -> AsyncIterator[ServedChannel]:
    made = authority or issue_channel_ca(HOSTS, None, datetime.now(UTC))

    async def renew() -> ChannelCA:
        return made

    controller, end = FakeController(), socket.create_server(("127.0.0.1", port))
    task = asyncio.create_task(ReportChannel(made, renew).serve(end, controller))
    context = ssl.create_default_context(cadata=made.files[CA])
    try:
        yield ServedChannel(controller, made, end.getsockname(), context)
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
        end.close()


async def _drip(writer: asyncio.StreamWriter) -> None:
    for letter in b"POST /" + b"x" * 1000:
        writer.write(bytes([letter]))
        await asyncio.sleep(0.05)


async def test_a_report_is_heard_and_echoed() -> None:
    body = json.dumps(REPORT).encode()
    async with served() as channel:
        status, answer, _ = await channel.post(body)
        assert (status, answer) == (200, REPORT)
        assert channel.controller.received == [("uid-a", "a-0", REPORT)]


async def test_reports_of_one_connection_follow_each_other() -> None:
    body = json.dumps(REPORT).encode()
    async with served() as channel:
        token = channel.ca.token("uid-a")
        head = f"POST {PATH.format('a', 'a-0')} HTTP/1.1\r\nHost: x\r\n"
        head += f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await channel.open()
        async with asyncio.timeout(WAIT):
            for _ in range(3):
                writer.write(head.encode() + body)
                await reader.readuntil(body)
        writer.close()
        assert len(channel.controller.received) == 3


@pytest.mark.parametrize(
    ("name", "pod", "token", "status"),
    [
        ("a", "a-0", "nonsense", 401),
        ("a", "a-0", "uid-b", 401),
        ("missing", "missing-0", "", 401),
        ("b", "b-0", "", 409),
        ("a", "b-0", "", 404),
    ],
)
async def test_only_a_pod_of_the_job_is_let_in(
    name: str, pod: str, token: str, status: int
) -> None:
    async with served() as channel:
        given = channel.ca.token(token) if token.startswith("uid") else token
        code, answer, _ = await channel.post(
            b'{"trainerStatus":{}}', name=name, pod=pod, token=given
        )
        assert (code, answer["kind"], answer["code"]) == (status, "Status", status)
        assert not channel.controller.received


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 422, "not an object"),
        (b"{}", 422, "trainerStatus: missing"),
        (b'"' + b"x" * (64 << 10) + b'"', 413, "64 KiB"),
        (b"x" * (1 << 20), 413, "64 KiB"),
    ],
)
async def test_what_is_no_report_is_told_so(body: bytes, status: int, text: str) -> None:
    async with served() as channel:
        code, answer, _ = await channel.post(body)
        assert (code, answer["code"]) == (status, status)
        assert text in answer["message"]


async def test_a_body_that_does_not_say_its_size_ends_at_the_limit() -> None:
    head = f"POST {PATH.format('a', 'a-0')} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    async with served() as channel:
        code, _, _ = await channel.say(head.encode() + b"\r\n" + chunk * 4)
        assert code == 413


async def test_headers_have_a_limit_too() -> None:
    async with served() as channel:
        code, _, _ = await channel.post(b"{}", more=f"X-Long: {'x' * 20_000}\r\n")
        assert code == 431


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with served() as channel:
        reader, writer = await channel.open()
        writer.write(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        async with asyncio.timeout(WAIT):
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.close()


async def test_a_standby_says_when_to_come_again() -> None:
    async with served() as channel:
        channel.controller.is_working = False
        status, _, head = await channel.post(b"{}")
        assert status == 503
        assert "Retry-After: 1" in head


async def test_too_many_reports_are_refused() -> None:
    async with served() as channel:
        channel.controller.left = 1
        body = json.dumps(REPORT).encode()
        assert [(await channel.post(body))[0] for _ in range(2)] == [200, 429]


async def test_who_sends_a_letter_at_a_time_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_http, "_REQUEST_SECONDS", 0.5)
    async with served() as channel:
        reader, writer = await channel.open()
        drip = asyncio.create_task(_drip(writer))
        async with asyncio.timeout(WAIT):
            assert b" 408 " in await reader.readline()
            assert await reader.read() != b"", "and why"
        drip.cancel()
        writer.close()
        assert (await channel.post(json.dumps(REPORT).encode()))[0] == 200


async def test_connections_that_never_speak_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_http, "_MAX_CONNECTIONS", 4)
    async with served() as channel:
        idle = [await asyncio.open_connection(*channel.address) for _ in range(8)]
        assert (await channel.post(json.dumps(REPORT).encode()))[0] == 200
        for _, writer in idle:
            writer.close()


async def test_a_peer_has_a_share_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_http, "_MAX_OF_PEER", 2)
    async with served() as channel:
        held = [await channel.open() for _ in range(2)]
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await channel.open()
        held[0][1].close()
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    assert (await channel.post(json.dumps(REPORT).encode()))[0] == 200
                    break
                except OSError:
                    await asyncio.sleep(0.02)
        held[1][1].close()


# What it is trusted by.


async def test_a_renewed_certificate_is_trusted_by_pods_that_know_the_old_one() -> None:
    now = datetime.now(UTC)
    old = issue_channel_ca(HOSTS, None, now)
    new = issue_channel_ca(
        HOSTS, ChannelCA({**old.files, "renewAuthorityAt": "2020-01-01T00:00:00Z"}), now
    )
    assert new.files[CA] != old.files[CA]
    assert new.token("u") == old.token("u")
    async with served(new) as channel:
        channel.context = ssl.create_default_context(cadata=old.files[CA])
        assert (await channel.post(json.dumps(REPORT).encode()))[0] == 200


def test_it_is_renewed_in_time_and_for_other_hosts() -> None:
    made = issue_channel_ca(HOSTS, None, NOW)
    assert made.is_valid_for(HOSTS, NOW + timedelta(days=200))
    assert not made.is_valid_for(HOSTS, NOW + timedelta(days=300))
    assert not made.is_valid_for(["127.0.0.1"], NOW)
    again = issue_channel_ca(HOSTS, made, NOW + timedelta(days=300))
    assert again.files[CA] == made.files[CA], "the authority lives longer"
    assert again.is_valid_for(HOSTS, NOW + timedelta(days=500))


def test_what_is_not_whole_is_nothing() -> None:
    made = issue_channel_ca(HOSTS, None, NOW)
    assert ChannelCA.from_files(made.files) == made
    assert ChannelCA.from_files({**made.files, "renewAt": "soon"}) is None
    assert ChannelCA.from_files({"ca.crt": made.files[CA]}) is None


# What becomes of reports.


async def test_news_are_told_at_once_and_then_now_and_then() -> None:
    woken: list[float] = []
    loop = asyncio.get_running_loop()
    reports = ReportIntake(lambda: NOW, lambda uid: woken.append(loop.time()), 0.2)
    for step in range(20):
        metrics = [{"name": "current_step", "value": str(step)}]
        reports.receive("u", "p", {"trainerStatus": {"metrics": metrics}})
        await asyncio.sleep(0.01)
    async with asyncio.timeout(WAIT):
        while len(woken) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert min(after - before for before, after in pairwise(woken)) >= 0.19
    progress = reports.reports_of("u").progress
    assert progress is not None
    assert progress.step == 19
    assert progress.rate is not None
    assert progress.rate > 0


async def test_a_pod_and_a_job_may_tell_so_much() -> None:
    reports = ReportIntake(lambda: NOW, lambda uid: None, 1.0)
    assert sum(reports.allows("u", "p") for _ in range(100)) == pytest.approx(20, abs=2)
    others = sum(reports.allows("u", f"p{n // 15}") for n in range(1500))
    assert others == pytest.approx(380, abs=20)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "trainerStatus"),
        ({"progressPercentage": 101}, "progressPercentage"),
        ({"progressPercentage": True}, "progressPercentage"),
        ({"estimatedRemainingSeconds": -1}, "estimatedRemainingSeconds"),
        ({"metrics": {}}, "metrics"),
        ({"metrics": [{"name": "x"}]}, "metrics[0].value"),
        ({"metrics": [{"name": "", "value": "x"}]}, "metrics[0].name"),
        ({"checkpoint": {"step": 1}}, "checkpoint.path"),
        ({"checkpoint": {"path": "x", "step": -1}}, "checkpoint.step"),
    ],
)
async def test_a_bad_report_is_told_by_its_field(given: Any, field: str) -> None:
    reports = ReportIntake(lambda: NOW, lambda uid: None, 1.0)
    with pytest.raises(BadReport, match=field.replace("[", r"\[")):
        reports.receive("u", "p", {"trainerStatus": given})


async def test_odd_numbers_are_no_numbers() -> None:
    reports = ReportIntake(lambda: NOW, lambda uid: None, 1.0)
    named = {"current_step": "nan", "total_steps": "-3", "current_epoch": "1e999", "loss": "nan"}
    metrics = [{"name": name, "value": value} for name, value in named.items()]
    reports.receive("u", "p", {"trainerStatus": {"metrics": metrics}})
    progress = reports.reports_of("u").progress
    assert progress is not None
    assert (progress.step, progress.total, progress.epoch) == (None, None, None)
    assert progress.metrics == (("loss", "nan"),)


def test_the_file_of_the_embedded_cluster_is_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard.composition.controller_process import channel_authority

    path = tmp_path / "channel.json"
    made = channel_authority(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert channel_authority(path) == made
    path.write_text("{")
    assert channel_authority(path) != made
