"""The way to the API without a connection: what it answers is what the socket answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.apiserver import messages
from trainyard.embedded.apiserver.direct import DirectTransport
from trainyard.embedded.registry import Registry
from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, ApiError, Invalid, NotFound, Unreachable
from trainyard.kube.resources import CONFIG_MAPS, PODS
from trainyard.kube.transport import Request, Response
from trainyard.kube.unix_transport import UnixTransport

_MAPS = "/api/v1/namespaces/default/configmaps"
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
_REQUESTS = (
    Request("GET", "/version"),
    Request("GET", "/healthz", accept="*/*"),
    Request("GET", "/api/v1/namespaces/default"),
    Request("GET", f"{_MAPS}?labelSelector=a%3Db&limit=1"),
    Request("GET", f"{_MAPS}?labelSelector=%21%21"),
    Request("GET", f"{_MAPS}/n%20o"),
    Request("GET", f"{_MAPS}?watch=true&timeoutSeconds=0&resourceVersion=x"),
    Request("GET", "/nowhere"),
    Request("POST", _MAPS, b"{"),
    Request("POST", _MAPS, b"[]"),
    Request("POST", _MAPS, b'{"metadata":{"name":"Bad Name"}}'),
    Request("POST", _MAPS, b"apiVersion: v1", "application/yaml"),
    Request("POST", _MAPS, b"x", "text/plain"),
    Request("POST", _MAPS, b" " * (4 << 20)),
    Request("PATCH", f"{_MAPS}/none", b"{}", "application/merge-patch+json"),
    Request("PUT", f"{_MAPS}/none", b'{"metadata":{"name":"none"}}'),
    Request("DELETE", f"{_MAPS}/none"),
    Request("DELETE", "/api/v1/namespaces/default/pods/none", b'{"gracePeriodSeconds":-1}'),
    Request(
        "GET",
        "/api/v1/namespaces",
        accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    ),
)


@pytest.fixture
async def server(registry: Registry, tmp_path: Path) -> AsyncIterator[ApiServer]:
    made = ApiServer(registry)
    await made.serve_unix(tmp_path / "api.sock")
    yield made
    await made.close()


@pytest.mark.parametrize("request_", _REQUESTS, ids=lambda r: f"{r.method} {r.path[:60]}")
async def test_the_same_is_answered_as_over_the_socket(
    server: ApiServer, tmp_path: Path, request_: Request
) -> None:
    socket = UnixTransport(tmp_path / "api.sock")
    try:
        over_socket = await socket.request(request_, 30)
    finally:
        await socket.aclose()
    answer = await server.direct().request(request_, 30)
    assert (answer.status, answer.body) == (over_socket.status, over_socket.body)
    framing = {"content-length", "content-type", "date", "connection", "transfer-encoding"}
    assert (
        dict(answer.headers).items()
        >= {key: value for key, value in over_socket.headers.items() if key not in framing}.items()
    )


async def test_a_client_writes_reads_and_watches(server: ApiServer) -> None:
    async with Client(server.direct()) as client:
        await client.create(PODS, _POD)
        with pytest.raises(AlreadyExists):
            await client.create(PODS, _POD)
        with pytest.raises(Invalid):
            await client.create(PODS, {**_POD, "metadata": {"name": "q"}, "spec": {}}, "default")
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "none", "default")
        pods, version = await client.list(PODS, "default")
        assert [pod["metadata"]["name"] for pod in pods] == ["p"]
        seen: list[tuple[str, Any]] = []
        following = client.watch(PODS, "default", resource_version=version)
        async with asyncio.timeout(30), aclosing(following) as events:
            await client.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, "default")
            await client.delete(PODS, "p", "default", grace_seconds=0)
            async for event in events:
                if event.type != "BOOKMARK":
                    seen.append((event.type, event.object["metadata"].get("labels")))
                if event.type == "DELETED":
                    break
        assert seen == [("MODIFIED", {"a": "b"}), ("DELETED", {"a": "b"})]


async def test_who_writes_is_recorded_as_over_the_socket(server: ApiServer, tmp_path: Path) -> None:
    socket = UnixTransport(tmp_path / "api.sock")
    owners = []
    for way in (server.direct(), socket):
        for query in ("", "?fieldManager=somebody"):
            body = b'{"metadata":{"generateName":"c-"},"data":{"a":"b"}}'
            answer = await way.request(Request("POST", _MAPS + query, body), 30)
            entries = orjson.loads(answer.body)["metadata"].get("managedFields", ())
            owners.append([each["manager"] for each in entries])
    await socket.aclose()
    assert owners[:2] == owners[2:] == [[], ["somebody"]]


async def test_a_watch_that_is_refused_says_why(server: ApiServer) -> None:
    async with Client(server.direct()) as client:
        following = client.watch(PODS, "default", resource_version="x")
        with pytest.raises(ApiError, match="resourceVersion"):
            await anext(following)


async def test_writes_are_not_taken_back_or_lost_when_many_go_at_once(server: ApiServer) -> None:
    async with Client(server.direct()) as client:

        def config(number: int) -> dict[str, Any]:
            return {"metadata": {"name": f"c{number}"}, "data": {"n": str(number)}}

        made = await asyncio.gather(
            *(client.create(CONFIG_MAPS, config(n), "default") for n in range(100))
        )
        assert [each["data"]["n"] for each in made] == [str(n) for n in range(100)]
        assert len({each["metadata"]["resourceVersion"] for each in made}) == 100


async def test_nothing_is_answered_once_it_is_closed(server: ApiServer) -> None:
    way = server.direct()
    await way.aclose()
    with pytest.raises(Unreachable, match="closed"):
        await way.request(Request("GET", "/version"), 30)
    with pytest.raises(Unreachable, match="closed"):
        async with way.stream(Request("GET", "/version"), 30):
            pass


async def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    async def silent(_: messages.Request) -> messages.Answer:
        await asyncio.Event().wait()
        raise AssertionError

    way = DirectTransport(silent)
    with pytest.raises(Unreachable, match=r"within 0\.01 s \(GET /version\)"):
        await way.request(Request("GET", "/version"), 0.01)
    with pytest.raises(Unreachable, match="within"):
        async with way.stream(Request("GET", "/version"), 0.01):
            pass


async def test_a_stream_is_read_whole_or_in_time_and_ended() -> None:
    ended = []

    async def chunks(count: int) -> AsyncGenerator[bytes]:
        try:
            for number in range(count):
                yield b"%d\n" % number
                await (asyncio.sleep(0) if number < 2 else asyncio.Event().wait())
        finally:
            ended.append(count)

    async def handler(request: messages.Request) -> messages.Answer:
        return messages.Stream(chunks(int(request.query["n"])), headers=[("X-Kind", "s")])

    way = DirectTransport(handler)
    assert await way.request(Request("GET", "/?n=2"), 30) == Response(
        200, {"x-kind": "s"}, b"0\n1\n"
    )
    with pytest.raises(Unreachable, match="within"):
        await way.request(Request("GET", "/?n=3"), 0.1)
    async with way.stream(Request("GET", "/?n=3"), 30) as answer:
        assert await anext(answer.chunks) == b"0\n"
    assert ended == [2, 3, 3]


async def test_what_needs_a_connection_is_refused() -> None:
    async def run(_: object) -> None:
        raise AssertionError

    async def handler(_: messages.Request) -> messages.Answer:
        return messages.Upgrade([], run)

    with pytest.raises(Unreachable, match="needs a connection"):
        await DirectTransport(handler).request(Request("GET", "/exec"), 30)
