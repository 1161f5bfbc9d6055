"""What a real node has beside its agent: a way for pods to the operators, and commands in pods."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tests.cluster.node_api import RealCluster
from tests.cluster.plane import free_port
from tests.cluster.yard import Yard
from trainyard.embedded.apiserver.auth.request_identity import OWNER
from trainyard.embedded.apiserver.http import http_messages
from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimiter, ConnectionLimits
from trainyard.embedded.apiserver.http.listener import Listener
from trainyard.embedded.apiserver.pod_access import exec_streams
from trainyard.embedded.node.agent import NodeAgent
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.kube.errors import AlreadyExists
from trainyard.kube.resources import CONFIG_MAPS, NODES, PODS, SERVICES
from trainyard.kube.transport import Request

NODE = "node-of-our-own"
_STREAMS = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}
"""How an API server words to a kubelet what it was asked for."""


@asynccontextmanager
async def node(yard: Yard, folder: Path) -> AsyncIterator[NodeAgent]:
    """A node of the cluster, to which every pod is bound."""
    handle = start_pod_runtime(folder, die_with_parent=True)
    with suppress(AlreadyExists):
        await yard.client.create(NODES, {"metadata": {"name": NODE}})
    # A controller of other clusters makes it; every pod mounts it beside its token.
    authority = {"name": "kube-root-ca.crt", "namespace": yard.namespace}
    with suppress(AlreadyExists):
        await yard.client.create(CONFIG_MAPS, {"metadata": authority})
    cluster = RealCluster(yard.client, yard.namespace)
    async with cluster.running():
        settings = NodeSettings(
            *(NODE, str(folder)),
            working_dir=str(folder.parent),
            is_network_open=False,  # nothing that a pod sends is to leave the machine
            gpus=(),
        )
        agent = NodeAgent(cluster, PodRuntimeClient(handle), settings)
        tasks = [asyncio.create_task(agent.run()), asyncio.create_task(bind(yard, cluster))]
        try:
            yield agent
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await agent.shut_down()
            await asyncio.to_thread(handle.kill)


async def bind(yard: Yard, cluster: RealCluster) -> None:
    """The simplest scheduler."""
    async for event in cluster.subscribe("pods"):
        pod = event.object
        if event.type == "ADDED" and not pod["spec"].get("nodeName"):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            path = PODS.path(yard.namespace, name, "binding")
            await yard.client.raw(Request("POST", path, orjson.dumps(body)), f"bind {name}")


@asynccontextmanager
async def channel(yard: Yard, agent: NodeAgent, count: int = 1) -> AsyncIterator[list[list[str]]]:
    """The options of so many operators, to the first of which that leads pods find their way: by a
    Service, whose Endpoints the leader writes, and by a port of the node for each operator."""
    if agent.isolation == "plain":
        pytest.skip("not judged: without namespaces pods have no Services")
    service = {"spec": {"ports": [{"name": "reports", "port": 7443}]}}
    await yard.client.create(SERVICES, {"metadata": {"name": "reports"}, **service}, yard.namespace)
    servers, options = [], []
    try:
        for _ in range(count):
            port = free_port()
            end = await agent.open_listener(port)
            address = end.getsockname()[0]
            servers.append(await asyncio.start_server(_Forwarding(port), sock=end))
            options.append(
                [
                    f"--channel-address=reports.{yard.namespace}.svc.cluster.local:7443",
                    f"--channel-port={port}",
                    f"--channel-endpoint={address}",
                ]
            )
        yield options
    finally:
        for server in servers:
            server.close()


@asynccontextmanager
async def reporting(yard: Yard, folder: Path) -> AsyncIterator[NodeAgent]:
    """A node, and an operator that leads, to which pods find their way."""
    async with (
        node(yard, folder) as agent,
        channel(yard, agent) as options,
        yard.operator(*options[0]) as operator,
    ):
        await operator.leads()
        yield agent


class _Forwarding:
    """To a port of the machine; what cannot be delivered is refused."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def commands(yard: Yard, agent: NodeAgent) -> AsyncIterator[None]:
    """Have the API server find the node for `exec`."""

    async def run(request: http_messages.Request) -> http_messages.Answer:
        _, what, namespace, pod, container = request.path.split("/")
        assert (what, namespace) == ("exec", yard.namespace)
        queries = [(_STREAMS.get(key, key), value) for key, value in request.queries]
        wanted = replace(request, query={**dict(queries), "container": container}, queries=queries)
        found = await yard.client.get(PODS, pod, namespace)
        return await exec_streams.execute(wanted, found, agent)

    limits = ConnectionLimits(
        connections=64, unauthenticated=16, per_user=64, buffered_bytes=1 << 24
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*yard.plane.certificate)
    end = socket.create_server(("127.0.0.1", 0))
    port = end.getsockname()[1]
    listener = Listener(end, ConnectionLimiter(run, lambda headers, peer: OWNER, limits), context)
    try:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await yard.client.patch(NODES, NODE, {"status": status}, subresource="status")
        yield
    finally:
        listener.close()
