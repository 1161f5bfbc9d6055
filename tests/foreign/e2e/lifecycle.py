"""Hooks, probes, init and ephemeral containers, commands, nodes: test/e2e/common/node, e2e/node."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from functools import partial
from typing import Any

import aiohttp

from tests.foreign.e2e.pods import EMPTY, SLEEP
from tests.foreign.e2e.storage import mounted
from tests.foreign.e2e.world import (
    MERGE,
    STRATEGIC,
    Object,
    Place,
    Play,
    condition,
    container,
    expects,
)
from trainyard.kube.errors import NotFound

here = partial(expects, "lifecycle")
PORT = 8080
SERVE = "exec python3 -u -m http.server 8080 2>&1"
"""Answers what is asked of /, and prints what was asked."""
LISTEN = """exec python3 -uc '
import socket
server = socket.create_server(("", 8080))
while True:
    server.accept()[0].close()
    print("asked")
'"""

HEALTHY = r"""exec python3 -uc '
import socket

def frame(kind, flags, body):
    head = bytes((0, 0, len(body), kind, flags, 0, 0, 0, kind < 2))
    return head + body

ok, trailers = frame(1, 4, b"\x88"), frame(1, 5, b"\0\x0bgrpc-status\x010")
serving = frame(4, 0, b"") + ok + frame(0, 0, b"\0\0\0\0\2\x08\1") + trailers
server, kept = socket.create_server(("", 8080)), []
while True:
    kept.append(server.accept()[0])
    kept[-1].recv(65536)
    kept[-1].sendall(serving)
    print("asked")
'"""
"""A gRPC server that tells whoever asks for anything that it is well."""


async def server(place: Place, name: str = "server") -> str:
    """A pod that serves; its address."""
    probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    await place.start(name, SERVE, container={"readinessProbe": probe})
    return str((await place.ready(name))["status"]["podIP"])


def asking(address: str, what: str) -> Object:
    return {"httpGet": {"host": address, "port": PORT, "path": f"/?{what}"}}


# Hooks.


async def hook(moment: str, by_http: bool, place: Place) -> None:
    address = await server(place)
    handler = asking(address, moment)
    if not by_http:
        script = f"exec python3 -c 'import urllib.request as r; r.urlopen(\"http://{address}:{PORT}/?{moment}\")'"
        handler = {"exec": {"command": ["sh", "-c", script]}}
    parts = {"lifecycle": {moment: handler}}
    await place.start("p", SLEEP, container=parts, terminationGracePeriodSeconds=120)
    await place.ready("p")
    if moment == "preStop":
        assert "preStop" not in await place.log("server")
        await place.ask("DELETE", "pods/p")
        await place.gone("p")
    await place.shows("server", f"?{moment}")


for _moment, _name in (("postStart", "poststart"), ("preStop", "prestop")):
    for _by in ("exec", "http"):
        here(
            "Container Lifecycle Hook when create a pod with lifecycle hook should execute "
            f"{_name} {_by} hook properly"
        )(partial(hook, _moment, _by == "http"))
here("PreStop should call prestop when killing a pod")(partial(hook, "preStop", True))

# Probes.


def restarted(parts: Object, script: str, times: int = 1) -> Play:
    """A liveness probe fails, and so often the container starts again."""

    async def play(place: Place) -> None:
        probe = {"periodSeconds": 1, "failureThreshold": 1, **parts}
        probed = {"livenessProbe": probe, **mounted("/v")}
        await place.start("p", script, container=probed, restartPolicy="Always", volumes=[EMPTY])
        pod = await place.until("p", lambda pod: container(pod).get("restartCount", 0) >= times)
        assert pod["status"]["phase"] == "Running"

    return play


def stays(parts: Object, script: str, evidence: str) -> Play:
    """A liveness probe was asked three times, as its container prints, which never ended."""

    async def play(place: Place) -> None:
        patient = {"periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 120}
        probed = {"livenessProbe": {**patient, **parts}, **mounted("/v")}
        await place.start("p", script, container=probed, restartPolicy="Always", volumes=[EMPTY])
        await place.until("p", lambda pod: "running" in container(pod).get("state", {}))
        end = time.monotonic() + 240
        while (await place.log("p")).count(evidence) < 3:
            assert time.monotonic() < end, await place.log("p")
            await asyncio.sleep(0.2)
        pod = await place.ready("p")
        assert container(pod)["restartCount"] == 0

    return play


_PROBED = "Probing container should {} restarted with a {} liveness probe"
here(_PROBED.format("be", "/healthz http"))(
    restarted({"httpGet": {"path": "/healthz", "port": PORT}, "initialDelaySeconds": 1}, SERVE)
)
here(_PROBED.format("be", 'exec "cat /tmp/health"'))(
    restarted({"exec": {"command": ["cat", "/v/health"]}}, SLEEP)
)
here(_PROBED.format("be", "GRPC"))(restarted({"grpc": {"port": 2333}}, SLEEP))
here("Probing container should have monotonically increasing restart count")(
    restarted({"exec": {"command": ["false"]}}, SLEEP, times=2)
)
here(_PROBED.format("*not* be", "/healthz http"))(
    stays({"httpGet": {"path": "/", "port": PORT}}, SERVE, "GET /")
)
here(_PROBED.format("*not* be", "tcp:8080"))(stays({"tcpSocket": {"port": PORT}}, LISTEN, "asked"))
here(_PROBED.format("*not* be", 'exec "cat /tmp/health"'))(
    stays(
        {"exec": {"command": ["sh", "-c", "echo asked >> /v/f"]}},
        "touch /v/f; exec tail -f /v/f",
        "asked",
    )
)
here(_PROBED.format("*not* be", "GRPC"))(stays({"grpc": {"port": PORT}}, HEALTHY, "asked"))


@here(
    "Probing container with readiness probe should not be ready before initial delay and "
    "never restart"
)
async def _delayed(place: Place) -> None:
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 3, "timeoutSeconds": 60}
    await place.start("p", SLEEP, container={"readinessProbe": probe})
    pod = await place.ready("p")
    told = {each["type"]: each["lastTransitionTime"] for each in pod["status"]["conditions"]}
    began = container(pod)["state"]["running"]["startedAt"]
    assert _seconds(told["Ready"]) - _seconds(began) >= 2, (told, began)
    assert container(pod)["restartCount"] == 0


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@here("Probing container with readiness probe that fails should never be ready and never restart")
async def _never(place: Place) -> None:
    script = "touch /v/f; exec tail -f /v/f"
    probe = {"exec": {"command": ["sh", "-c", "echo asked >> /v/f; false"]}, "periodSeconds": 1}
    parts = {"readinessProbe": probe, **mounted("/v")}
    await place.start("p", script, container=parts, volumes=[EMPTY])
    await place.shows("p", "asked\n" * 3)
    pod = await place.until("p", lambda pod: pod["status"]["phase"] == "Running")
    assert condition(pod, "Ready") == "False"
    assert container(pod)["restartCount"] == 0


# Init containers.


def first(*scripts: str) -> list[Object]:
    return [
        {"name": f"init{index}", "image": "busybox", "command": ["sh", "-c", script]}
        for index, script in enumerate(scripts, 1)
    ]


@here("InitContainer should invoke init containers on a RestartNever pod")
async def _both_first(place: Place) -> None:
    await place.start("p", "true", initContainers=first("true", "true"))
    pod = await place.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert condition(pod, "Initialized") == "True"
    for each in pod["status"]["initContainerStatuses"]:
        assert each["ready"]
        assert each["state"]["terminated"]["exitCode"] == 0


@here("InitContainer should invoke init containers on a RestartAlways pod")
async def _both_and_on(place: Place) -> None:
    await place.start("p", SLEEP, initContainers=first("true", "true"), restartPolicy="Always")
    pod = await place.ready("p")
    assert condition(pod, "Initialized") == "True"
    assert all(each["ready"] for each in pod["status"]["initContainerStatuses"])


@here(
    "InitContainer should not start app containers and fail the pod if init containers "
    "fail on a RestartNever pod"
)
async def _failed(place: Place) -> None:
    await place.start("p", "true", initContainers=first("true", "false"))
    pod = await place.ended("p")
    assert pod["status"]["phase"] == "Failed"
    assert "waiting" in container(pod)["state"]
    assert condition(pod, "Initialized") == "False"
    assert container(pod, "init2")["state"]["terminated"]["exitCode"] == 1


@here(
    "InitContainer should not start app containers if init containers fail on a RestartAlways pod"
)
async def _again(place: Place) -> None:
    await place.start("p", "true", initContainers=first("false", "true"), restartPolicy="Always")
    pod = await place.until("p", lambda pod: container(pod, "init1").get("restartCount", 0) >= 2)
    assert pod["status"]["phase"] == "Pending"
    assert "waiting" in container(pod)["state"]
    assert "waiting" in container(pod, "init2")["state"]
    assert condition(pod, "Initialized") == "False"


# Ephemeral containers.


async def ephemeral(names: tuple[str, ...], place: Place) -> None:
    await place.start("p", SLEEP)
    await place.ready("p")
    for name in names:
        new = {"name": name, "image": "busybox", "command": ["sh", "-c", f"echo polo; {SLEEP}"]}
        change = {"spec": {"ephemeralContainers": [new]}}
        await place.ask("PATCH", "pods/p/ephemeralcontainers", change, STRATEGIC)
        await place.shows("p", "polo\n", name)
    pod = await place.ask("GET", "pods/p")
    assert all("running" in container(pod, name)["state"] for name in names)
    assert [each["name"] for each in pod["spec"]["ephemeralContainers"]] == list(names)


here("Ephemeral Containers will start an ephemeral container in an existing pod")(
    partial(ephemeral, ("one",))
)
here("Ephemeral Containers should update the ephemeral containers in an existing pod")(
    partial(ephemeral, ("one", "two"))
)

# WebSockets.


async def heard(place: Place, path: str, protocol: str) -> bytes:
    """All that comes over a WebSocket."""
    found = b""
    connector = aiohttp.UnixConnector(str(place.world.socket))
    url = f"http://localhost/api/v1/namespaces/{place.namespace}/pods/p/{path}"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.ws_connect(url, protocols=[protocol]) as socket,
    ):
        async for message in socket:
            found += message.data if isinstance(message.data, bytes) else message.data.encode()
    return found


@here("Pods should support remote command execution over websockets")
async def _executed(place: Place) -> None:
    await place.start("p", SLEEP)
    await place.ready("p")
    query = "exec?command=echo&command=remote&stdout=1&stderr=1&container=c"
    assert b"\x01remote\n" in await heard(place, query, "channel.k8s.io")


@here("Pods should support retrieving logs from the container over websockets")
async def _logged(place: Place) -> None:
    await place.start("p", "echo container is alive")
    await place.ended("p")
    assert b"container is alive\n" in await heard(place, "log?container=c", "binary.k8s.io")


# Names of the machine.


@here("KubeletManagedEtcHosts should test kubelet managed /etc/hosts file")
async def _hosts(place: Place) -> None:
    managed = "Kubernetes-managed hosts file"
    assert managed in await place.run("cat /etc/hosts")
    assert managed not in await place.run("cat /etc/hosts", hostNetwork=True)
    own = {
        "container": {"volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]},
        "volumes": [{"name": "v", "hostPath": {"path": "/etc/hosts", "type": "File"}}],
    }
    assert managed not in await place.run("cat /etc/hosts", **own)


# Nodes: all pods of the cluster feel what is done to one, so each has a taint of its own.


async def tainted(place: Place, key: str, *, on: bool) -> None:
    async with place.world.node:
        nodes = (await place.plainly("GET", "/api/v1/nodes"))["items"]
        (node,) = (each for each in nodes if not each["spec"].get("unschedulable"))
        taints = [each for each in node["spec"].get("taints") or () if each["key"] != key]
        if on:
            taints.append({"key": key, "effect": "NoExecute"})
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        await place.plainly("PATCH", path, {"spec": {"taints": taints or None}}, MERGE)


def bearing(key: str, seconds: int, *others: str) -> list[Object]:
    mine = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    return [mine, *({"key": each, "operator": "Exists"} for each in others)]


@expects("nodes", "NoExecuteTaintManager Multiple Pods evicts pods with minTolerationSeconds")
async def _evicted(place: Place) -> None:
    for name, seconds in (("soon", 1), ("late", 4), ("stays", 9000)):
        await place.start(name, SLEEP, tolerations=bearing("first", seconds, "second"))
        await place.ready(name)
    await tainted(place, "first", on=True)
    try:
        await place.gone("soon")
        await place.gone("late")
        assert (place.namespace, "stays") in place.world.pods
    finally:
        await tainted(place, "first", on=False)


@expects("nodes", "NoExecuteTaintManager Single Pod removing taint cancels eviction")
async def _cancelled(place: Place) -> None:
    for seconds in (4, 40):  # longer where the machine is too slow to tell
        name = f"bears-{seconds}"
        await place.start(name, SLEEP, tolerations=bearing("second", seconds, "first"))
        await place.ready(name)
        before = time.monotonic()
        await tainted(place, "second", on=True)
        await tainted(place, "second", on=False)
        if time.monotonic() - before < seconds:
            await asyncio.sleep(before + seconds + 1 - time.monotonic())
            assert "deletionTimestamp" not in (await place.ask("GET", f"pods/{name}"))["metadata"]
            return
    raise AssertionError("the taint could not be removed in time")


@expects("nodes", "Node Lifecycle should run through the lifecycle of a node")
async def _node(place: Place) -> None:
    path = f"/api/v1/nodes/{place.namespace}"
    metadata: dict[str, Any] = {"name": place.namespace}
    spec = {"unschedulable": True}
    await place.plainly("POST", "/api/v1/nodes", {"metadata": metadata, "spec": spec})
    change = {"metadata": {"labels": {"of": place.namespace}}}
    await place.plainly("PATCH", path, change, MERGE)
    found = await place.plainly("GET", f"/api/v1/nodes?labelSelector=of={place.namespace}")
    (node,) = found["items"]
    node["metadata"]["labels"]["updated"] = "yes"
    assert (await place.plainly("PUT", path, node))["metadata"]["labels"]["updated"] == "yes"
    await place.plainly("DELETE", path)
    try:
        await place.plainly("GET", path)
    except NotFound:
        return
    raise AssertionError("it is still there")
