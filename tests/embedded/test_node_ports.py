"""NodePort Services: from this machine into pods, by real connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from tests.embedded.node_cluster import Cluster, Object, cluster
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import Isolation

ECHO = """
import socket, sys
server = socket.create_server(("", 7000))
while True:
    peer, _ = server.accept()
    while data := peer.recv(65536):
        peer.sendall(sys.argv[1].encode() + data)
    peer.close()
"""
ON_OWN_ADDRESS = ECHO.replace('""', "__import__('os').environ['IP']")
ADDRESS = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


async def service(node: Cluster, name: str = "echo", **port: int) -> Object:
    spec = {
        "type": "NodePort",
        "selector": {"app": name},
        "ports": [{"port": 80, "targetPort": 7000, **port}],
    }
    metadata = {"name": name, "namespace": "default"}
    return await node.registry.create("services", {"metadata": metadata, "spec": spec})


async def echo_pod(node: Cluster, name: str, text: str, app: str = "echo") -> None:
    probe = {"tcpSocket": {"port": 7000}, "periodSeconds": 1}
    await node.create(
        name,
        ["python3", "-c", ON_OWN_ADDRESS, text],
        container={"env": ADDRESS, "readinessProbe": probe},
        metadata={"labels": {"app": app}},
    )


async def ask(port: int, text: bytes) -> bytes:
    """What comes back; a port that nothing listens on yet is tried again."""
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            await asyncio.sleep(0.01)
        writer.write(text)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return answer


def is_ready(pod: Object) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def port_of(made: Object) -> int:
    return int(made["spec"]["ports"][0]["nodePort"])


@pytest.mark.parametrize("isolation", ["auto", "plain"])
async def test_a_port_of_this_machine_leads_into_a_pod(
    tmp_path: Path, isolation: Isolation
) -> None:
    """Also one that is connected to before its pod listens."""
    async with cluster(tmp_path / "s", isolation=isolation) as node:
        port = port_of(await service(node))
        assert 30000 <= port < 32768
        await echo_pod(node, "one", "hello ")
        assert await ask(port, b"world") == b"hello world"
        long = await ask(port, b"x" * 1_000_000)
        assert long.replace(b"hello ", b"") == b"x" * 1_000_000


async def test_connections_follow_the_pods_that_are_there(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        port = port_of(await service(node))
        await echo_pod(node, "one", "one")
        assert await ask(port, b".") == b"one."
        await echo_pod(node, "two", "two")
        answers = set()
        async with asyncio.timeout(120):
            while len(answers) < 2:
                answers.add(await ask(port, b"."))
        await node.registry.delete("pods", "default", "one", Deletion(grace_seconds=1))
        await node.gone("one")
        assert {await ask(port, b".") for _ in range(4)} == {b"two."}


async def test_a_service_without_a_selector_leads_where_its_endpoints_say(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        spec = {"type": "NodePort", "ports": [{"name": "echo", "port": 80}]}
        made = await node.registry.create("services", {"metadata": {"name": "own"}, "spec": spec})
        for name in ("one", "two"):
            await echo_pod(node, name, name)

        def subsets(pod: Object) -> list[Object]:
            address = {"ip": pod["status"]["podIP"]}
            return [{"addresses": [address], "ports": [{"name": "echo", "port": 7000}]}]

        one, two = [await node.until(name, is_ready) for name in ("one", "two")]
        own = {"metadata": {"name": "own"}, "subsets": subsets(one)}
        await node.registry.create("endpoints", own)
        assert await ask(port_of(made), b".") == b"one."
        await node.registry.update(
            "endpoints", "default", "own", lambda found: {**found, "subsets": subsets(two)}
        )
        assert await ask(port_of(made), b".") == b"two."


async def test_a_deleted_service_leaves_its_port(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        port = port_of(await service(node))
        await echo_pod(node, "one", "")
        assert await ask(port, b"a") == b"a"
        await node.registry.delete("services", "default", "echo")
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(OSError):
                    socket.create_server(("127.0.0.1", port)).close()
                    break
                await asyncio.sleep(0.01)


async def test_a_port_that_is_taken_is_told_and_had_later(tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    async with cluster(tmp_path / "s") as node:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
        spec = {
            "type": "NodePort",
            "selector": {"app": "echo"},
            "ports": [{"port": 80, "targetPort": 7000, "nodePort": port}],
        }
        metadata = {"name": "echo", "namespace": "default", "ownerReferences": [owner]}
        await node.registry.create("services", {"metadata": metadata, "spec": spec})
        await echo_pod(node, "one", "had ")
        await node.until("one", lambda _: bool(node.events("NotHonoured")))
        assert f"127.0.0.1:{port}" in node.events("NotHonoured")[0]
        taken.close()
        assert await ask(port, b"it") == b"had it"


async def test_connections_that_are_given_up_leave_no_descriptors(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        await echo_pod(node, "one", "")
        pod = await node.until("one", is_ready)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            connecting = asyncio.create_task(node.agent.connect(pod, 7000))
            await asyncio.sleep(0)  # the request is on its way
            connecting.cancel()
            await asyncio.wait({connecting})
            assert connecting.cancelled()
        answered = await node.agent.connect(pod, 7000)  # and so are those before it
        await answered.close()
        assert len(os.listdir("/proc/self/fd")) == before


async def test_a_page_of_another_site_does_not_reach_a_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        port = port_of(await service(node))
        await echo_pod(node, "one", "")
        request = b"GET / HTTP/1.1\r\nHost: %b:1\r\n\r\n"
        assert await ask(port, request % b"localhost") == request % b"localhost"
        assert (await ask(port, request % b"evil.example")).startswith(b"HTTP/1.1 403 ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
async def test_another_user_of_this_machine_does_not_reach_a_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        port = port_of(await service(node))
        await echo_pod(node, "one", "")
        assert await ask(port, b"mine") == b"mine"
        os.seteuid(54321)  # whoever makes a socket has it; imports nothing, and may not
        try:
            theirs = socket.socket()
        finally:
            os.seteuid(0)
        theirs.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=theirs)
        writer.write(b"theirs")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
