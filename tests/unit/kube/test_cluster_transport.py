"""Requests to a cluster over TCP, against real HTTP servers on this machine."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from trainyard.kube import cluster_transport as clusters
from trainyard.kube.client import Client
from trainyard.kube.cluster_transport import ClusterTransport
from trainyard.kube.credentials import Cluster, Credentials
from trainyard.kube.errors import Unreachable
from trainyard.kube.resources import PODS

Handler = Callable[[web.Request], Awaitable[web.Response]]
POD = {"metadata": {"name": "a", "namespace": "default"}}


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    """The address of a server that answers so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_path_credentials_and_compression_are_those_of_the_cluster() -> None:
    seen: list[tuple[str, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers["Host"], request.headers["Authorization"]))
        body = gzip.compress(json.dumps({"metadata": {"name": "a"}}).encode())
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=body, headers=headers)

    async with served(handler) as address:
        transport = ClusterTransport(Cluster(f"{address}/k8s/c1/", authorization="Bearer x"))
        async with Client(transport) as client:
            assert await client.get(PODS, "a", "default") == {"metadata": {"name": "a"}}
    host = address.removeprefix("http://")
    assert seen == [("/k8s/c1/api/v1/namespaces/default/pods/a", host, "Bearer x")]


class Rotating(Cluster):
    """Its plugin gives the second certificate at the third time."""

    asked = 0

    async def credentials(self) -> Credentials:
        Rotating.asked += 1
        return Credentials(certificate=b"first" if Rotating.asked < 3 else b"second")

    def tls(self, credentials: Credentials) -> ssl.SSLContext:
        return ssl.create_default_context()


async def test_connections_are_kept_until_there_is_another_certificate() -> None:
    """A plugin gives the same certificate with every answer; it cost a connection each time."""
    connections: set[int] = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername")[1])
        return web.json_response(POD)

    async with served(handler) as address, Client(ClusterTransport(Rotating(address))) as client:
        used = []
        for _ in range(3):
            await client.get(PODS, "a", "default")
            used.append(len(connections))
    assert used == [1, 1, 2]


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies between, a load balancer for one, may have forgotten it without a word."""
    connections: set[int] = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        connections.add(request.transport.get_extra_info("peername")[1])
        return web.json_response(POD)

    monkeypatch.setattr(clusters, "_IDLE_SECONDS", 0.0)
    async with served(handler) as address, Client(ClusterTransport(Cluster(address))) as client:
        for _ in range(2):
            await client.get(PODS, "a", "default")
            await asyncio.sleep(0.01)  # idle for longer than it may be
    assert len(connections) == 2


async def test_a_write_is_never_sent_twice_and_a_read_is() -> None:
    """The server takes the request on a connection that was idle, and closes it."""
    bodies: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(request.method)
        if len(bodies) in (2, 5):
            assert request.transport is not None
            request.transport.close()
        return web.json_response(POD)

    async with served(handler) as address, Client(ClusterTransport(Cluster(address))) as client:
        await client.get(PODS, "a", "default")
        await client.get(PODS, "a", "default")
        assert bodies == ["GET"] * 3
        await client.get(PODS, "a", "default")
        with pytest.raises(Unreachable, match="no answer from the API server at http"):
            await client.create(PODS, POD)
    assert bodies == [*["GET"] * 4, "POST"]


async def test_a_proxy_is_used_where_the_kubeconfig_names_one() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.raw_path}")
        return web.json_response(POD)

    async with served(handler) as proxy:
        transport = ClusterTransport(Cluster("http://cluster.invalid", proxy=proxy))
        async with Client(transport) as client:
            await client.get(PODS, "a", "default")
    assert asked == ["GET http://cluster.invalid/api/v1/namespaces/default/pods/a"]


async def test_a_server_that_is_not_there_is_named() -> None:
    async with Client(ClusterTransport(Cluster("http://127.0.0.1:1"))) as client:
        with pytest.raises(Unreachable, match=r"API server at http://127\.0\.0\.1:1: "):
            await client.get(PODS, "a", "default")
