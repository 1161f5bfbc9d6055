"""Requests that are passed on to ports of pods: `kubectl get --raw`, `kubectl proxy`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.embedded.kubectl import Cluster, running_pod

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
READY = [{"type": "Ready", "status": "True"}]


@asynccontextmanager
async def page_server() -> AsyncIterator[int]:
    """What a program in a pod may answer."""

    async def echo(request: web.Request) -> web.Response:
        told = {
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": await request.text(),
        }
        return web.json_response(told, status=int(request.query.get("status", 200)))

    async def pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for number in range(3):
            await answer.write(f"piece {number}\n".encode())
        return answer

    async def socket(request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        async for message in answer:
            await answer.send_str(str(message.data).upper())
        return answer

    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return answer

    app = web.Application()
    app.router.add_get("/pieces", pieces)
    app.router.add_get("/socket", socket)
    app.router.add_get("/broken", broken)
    app.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def local_proxy(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of `kubectl proxy`."""
    process = await cluster.start("proxy", "--port=0", "--reject-paths=")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode()
        url = f"http://127.0.0.1:{line.split('127.0.0.1:')[1].split()[0]}"
        async with aiohttp.ClientSession(url) as session:
            yield session
    finally:
        process.kill()
        await process.communicate()


async def test_a_port_of_a_pod_is_read(cluster: Cluster) -> None:
    await running_pod(cluster)
    async with page_server() as port:
        told = json.loads(await cluster("get", "--raw", f"{PODS}/p:{port}/proxy/a%20b//c/?x=1&y=2"))
        assert (told["method"], told["path"]) == ("GET", "/a%20b//c/?x=1&y=2")
        assert "authorization" not in told["headers"]
        assert await cluster("get", "--raw", f"{PODS}/http:p:{port}/proxy/pieces") == (
            "piece 0\npiece 1\npiece 2\n"
        )


async def test_all_of_http_goes_through(cluster: Cluster) -> None:
    await running_pod(cluster)
    async with page_server() as port, local_proxy(cluster) as session:
        base = f"{PODS}/p:{port}/proxy"
        async with asyncio.timeout(120):
            body = "ä" * 100_000
            async with session.post(f"{base}/in?status=418", data=body.encode()) as answer:
                told = await answer.json()
                assert (answer.status, told["method"], told["body"]) == (418, "POST", body)
            async with session.delete(f"{base}/in") as answer:
                assert (await answer.json())["method"] == "DELETE"
            async with session.head(f"{base}/in") as answer:
                assert (answer.status, await answer.read()) == (200, b"")
                assert int(answer.headers["Content-Length"]) > 0
            async with session.get(f"{base}?x=1", allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (301, f"{base}/?x=1")
            async with session.ws_connect(f"{base}/socket") as socket:
                await socket.send_str("to the pod")
                assert await socket.receive_str() == "TO THE POD"
            with pytest.raises(aiohttp.ClientError):
                async with session.get(f"{base}/broken") as answer:
                    await answer.read()


async def test_a_service_leads_to_a_pod_that_is_ready(cluster: Cluster) -> None:
    async with page_server() as port:
        spec = {
            "selector": {"app": "x"},
            "ports": [{"name": "page", "port": 80, "targetPort": port}],
        }
        service = {"metadata": {"name": "s"}, "spec": spec}
        await cluster.registry.create("services", service)
        said = await cluster("get", "--raw", f"{SERVICES}/s:page/proxy/", fails=True)
        assert "no endpoints available" in said
        await running_pod(cluster)
        await cluster.registry.update(
            "pods",
            "default",
            "p",
            lambda copy: {**copy, "status": {**copy["status"], "conditions": READY}},
            subresource="status",
        )
        for name in ("s", "s:page", "s:80"):
            told = json.loads(await cluster("get", "--raw", f"{SERVICES}/{name}/proxy/here"))
            assert told["path"] == "/here"
        said = await cluster("get", "--raw", f"{SERVICES}/s:nope/proxy/", fails=True)
    assert "no service port" in said


async def test_a_service_without_a_selector_leads_where_its_endpoints_say(
    cluster: Cluster,
) -> None:
    """To pods of its namespace: nothing else is reached by way of the API server."""
    async with page_server() as port:
        ports = [{"name": "page", "port": 80}, {"name": "other", "port": 81}]
        service = {"metadata": {"name": "s"}, "spec": {"ports": ports}}
        await cluster.registry.create("services", service)
        await running_pod(cluster)
        address = cluster.registry.get("pods", "default", "p")["status"]["podIP"]
        subsets = [{"addresses": [{"ip": address}], "ports": [{"name": "page", "port": port}]}]
        own = {"metadata": {"name": "s"}, "subsets": subsets}
        await cluster.registry.create("endpoints", own)
        told = json.loads(await cluster("get", "--raw", f"{SERVICES}/s:page/proxy/here"))
        assert told["path"] == "/here"
        said = await cluster("get", "--raw", f"{SERVICES}/s:other/proxy/", fails=True)
        assert "no endpoints available" in said
        subsets[0]["addresses"] = [{"ip": "10.244.200.200"}]
        await cluster.registry.update(
            "endpoints", "default", "s", lambda found: {**found, "subsets": subsets}
        )
        said = await cluster("get", "--raw", f"{SERVICES}/s:page/proxy/", fails=True)
        assert "no endpoints available" in said


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent:80", "not found"),
        ("p:99999", "from 1 to 65535"),
        ("p:name", "from 1 to 65535"),
        ("https:p:80", "not https"),
        ("p:{free}", "error trying to reach service"),
    ],
)
async def test_what_cannot_be_reached_is_said(cluster: Cluster, name: str, expected: str) -> None:
    await running_pod(cluster)
    async with page_server() as port:
        pass
    path = f"{PODS}/{name.format(free=port)}/proxy/"
    assert expected in await cluster("get", "--raw", path, fails=True)


async def test_what_does_not_speak_http_is_said(cluster: Cluster) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-none\r\n")
        await writer.drain()
        writer.close()

    await running_pod(cluster)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        said = await cluster("get", "--raw", f"{PODS}/p:{port}/proxy/", fails=True)
    assert "does not speak HTTP" in said
