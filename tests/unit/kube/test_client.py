"""The client over a real Unix socket, against a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from trainyard.kube import errors
from trainyard.kube.client import Client, LogOptions
from trainyard.kube.resources import NODES, PODS, Resource

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[Client]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a server whose every request goes to one handler, and a client of it."""
    stack = contextlib.AsyncExitStack()

    async def start(handler: Handler) -> Client:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.UnixSite(runner, str(tmp_path / "api.sock")).start()
        client = Client.unix(tmp_path / "api.sock", timeout_seconds=120)
        return await stack.enter_async_context(client)

    async with stack:
        yield start


def status(code: int, reason: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"it is {reason}"}
    return web.json_response(body, status=code)


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ({"major": "1", "minor": "33"}, (1, 33)),
        ({"major": "1", "minor": "27+"}, (1, 27)),
        ({}, (0, 0)),
    ],
)
async def test_the_version_of_the_server_is_read_as_numbers(
    serve: Serve, told: dict[str, str], version: tuple[int, int]
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.path == "/version"
        return web.json_response(told)

    assert await (await serve(handler)).server_version() == version


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerError),
    ],
)
async def test_a_status_becomes_the_error_of_its_kind(
    serve: Serve, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(code, reason)

    client = await serve(handler)
    with pytest.raises(kind, match=f"cannot read Pod default/a: it is {reason}") as caught:
        await client.get(PODS, "a", "default")
    assert type(caught.value) is kind
    assert caught.value.code == code


async def test_an_answer_without_a_status_shows_its_text(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=502, text="bad gateway")

    client = await serve(handler)
    with pytest.raises(errors.ServerError, match="bad gateway"):
        await client.get(NODES, "n")


async def test_requests_carry_method_path_and_parameters(serve: Serve) -> None:
    seen: list[tuple[str, str, dict[str, str]]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, dict(request.query)))
        return web.json_response({"metadata": {"name": "x"}})

    client = await serve(handler)
    queue = Resource("scheduler.tensorstack.dev", "v1beta1", "queues", "Queue", namespaced=False)
    await client.get(queue, "q")
    await client.create(PODS, {"metadata": {"name": "p", "namespace": "team"}})
    await client.replace(
        PODS, {"metadata": {"name": "p", "namespace": "team"}}, subresource="status"
    )
    await client.delete(PODS, "p", "team", uid="u", grace_seconds=0)
    write = {"fieldValidation": "Strict", "fieldManager": "trainyard"}
    assert seen == [
        ("GET", "/apis/scheduler.tensorstack.dev/v1beta1/queues/q", {}),
        ("POST", "/api/v1/namespaces/team/pods", write),
        ("PUT", "/api/v1/namespaces/team/pods/p/status", write),
        ("DELETE", "/api/v1/namespaces/team/pods/p", {}),
    ]


async def test_a_throttled_request_is_repeated_after_the_time_asked_for(serve: Serve) -> None:
    answers = [429, 429, 200]
    waits: list[float] = []

    async def handler(request: web.Request) -> web.Response:
        code = answers.pop(0)
        headers = {"Retry-After": "3"} if code == 429 else {}
        return web.json_response({"kind": "Pod"}, status=code, headers=headers)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    served = await serve(handler)
    client = Client(served._transport, sleep=sleep, jitter=lambda: 0.0)
    assert await client.get(PODS, "a", "default") == {"kind": "Pod"}
    assert waits == [3.0, 3.0]


async def test_a_list_is_read_page_by_page(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        first = "continue" not in request.query
        metadata = {"resourceVersion": "7", **({"continue": "more"} if first else {})}
        item = {"metadata": {"name": "a" if first else "b"}}
        return web.json_response({"metadata": metadata, "items": [item]})

    client = await serve(handler)
    items, version = await client.list(PODS)
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]
    assert version == "7"


async def test_many_requests_share_few_connections(serve: Serve) -> None:
    connections: set[int] = set()

    async def handler(request: web.Request) -> web.Response:
        connections.add(id(request.transport))
        return web.json_response({"metadata": {"name": request.path.rsplit("/", 1)[1]}})

    client = await serve(handler)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client.get(PODS, f"p{i}", "default")) for i in range(300)]
    names = [task.result()["metadata"]["name"] for task in tasks]
    assert names == [f"p{i}" for i in range(300)]
    assert len(connections) <= 64


async def test_a_watch_yields_events_and_ends_with_the_server(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        # One event is cut in two, two come at once.
        for part in (
            b'{"type":"ADDED","obj',
            b'ect":{"n":1}}\n',
            b'{"type":"BOOKMARK","object":{}}\n',
        ):
            await response.write(part)
        return response

    client = await serve(handler)
    events = [event async for event in client.watch(PODS, resource_version="1")]
    assert [(event.type, event.object) for event in events] == [
        ("ADDED", {"n": 1}),
        ("BOOKMARK", {}),
    ]


async def test_an_error_event_in_a_watch_is_raised(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text='{"type":"ERROR","object":{"code":410,"reason":"Expired"}}\n')

    client = await serve(handler)
    with pytest.raises(errors.Gone):
        async for _ in client.watch(PODS, resource_version="1"):
            pass


async def test_a_silent_watch_is_given_up(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(5)
        return response

    client = await serve(handler)
    with pytest.raises(errors.StreamError, match="silence"):
        async for _ in client.watch(PODS, resource_version="1", idle_seconds=0.05):
            pass


async def test_a_log_larger_than_the_buffer_arrives_whole(serve: Serve) -> None:
    block = b"x" * 65536

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(64):
            await response.write(block)
        return response

    client = await serve(handler)
    total = 0
    async for chunk in client.logs("p", "default", options=LogOptions(follow=True)):
        total += len(chunk)
        await asyncio.sleep(0)
    assert total == 64 * len(block)


async def test_an_answer_larger_than_the_buffer_arrives_whole(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        items = [{"metadata": {"name": "x" * 4000}}] * 500
        return web.json_response({"metadata": {}, "items": items})

    client = await serve(handler)
    items, _ = await client.list(PODS)
    assert len(items) == 500


async def test_no_answer_in_time_is_unreachable(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    served = await serve(handler)
    client = Client(served._transport, timeout_seconds=0.05)
    with pytest.raises(errors.Unreachable, match="no answer"):
        await client.get(PODS, "a", "default")


async def test_a_missing_socket_is_unreachable(tmp_path: Path) -> None:
    async with Client.unix(tmp_path / "nowhere.sock") as client:
        with pytest.raises(errors.Unreachable, match=r"nowhere\.sock"):
            await client.get(PODS, "a", "default")


async def test_a_read_survives_an_idle_connection_that_the_server_closed(tmp_path: Path) -> None:
    handlers: list[asyncio.Task[None]] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")  # the next request, never answered
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    path = tmp_path / "api.sock"
    async with await asyncio.start_unix_server(once, path):
        async with Client.unix(path) as client:
            await client.get(PODS, "a", "default")
            await client.get(PODS, "a", "default")
        await asyncio.wait(handlers, timeout=120)
    assert len(handlers) == 2
