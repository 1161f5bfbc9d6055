"""The node agent as the kubelet of a real cluster: jobs run to their end with real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from tests.cluster.node_api import RealCluster
from tests.cluster.yard import Object, Yard, pytorch_job, until
from tests.tools import require
from tests.unit.kinds import manifests
from trainyard.kube.errors import AlreadyExists
from trainyard.kube.resources import CONFIG_MAPS, EVENTS, NODES, PODS
from trainyard.kube.transport import Request
from trainyard.local.node.agent import NodeAgent
from trainyard.local.node.settings import NodeSettings
from trainyard.local.node.shim_client import ShimClient
from trainyard.local.node.shim_process import start_shim
from trainyard.shim.logs import LogOptions

NODE = "node-of-our-own"


@asynccontextmanager
async def node(yard: Yard, folder: Path) -> AsyncIterator[NodeAgent]:
    """A node of the cluster, to which every pod is bound."""
    handle = start_shim(folder, die_with_parent=True)
    with suppress(AlreadyExists):
        await yard.client.create(NODES, {"metadata": {"name": NODE}})
    # A controller of other clusters makes it; every pod mounts it beside its token.
    authority = {"name": "kube-root-ca.crt", "namespace": yard.namespace}
    with suppress(AlreadyExists):
        await yard.client.create(CONFIG_MAPS, {"metadata": authority})
    cluster = RealCluster(yard.client, yard.namespace)
    async with cluster.running():
        settings = NodeSettings(NODE, str(folder), working_dir=str(folder.parent), gpus=())
        agent = NodeAgent(cluster, ShimClient(handle), settings)
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


def job(script: str, **spec: object) -> Object:
    made = pytorch_job("real", **spec)
    container = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", script]
    return made


async def log(agent: NodeAgent, pod: Object) -> str:
    return b"".join([chunk async for chunk in agent.logs(pod, "pytorch", LogOptions())]).decode()


async def test_a_job_runs_to_its_end(yard: Yard, tmp_path: Path) -> None:
    """Replicas find rank 0 by its name, and a failed one is started again by the operator."""
    (shared := tmp_path / "shared").mkdir()
    script = (
        f"getent hosts $MASTER_ADDR > /dev/null || exit 3; cd {shared}; "
        "if [ $RANK = 1 ]; then mkdir once 2>/dev/null && exit 1; touch again; fi; "
        "until [ -e again ]; do sleep 0.1; done; echo rank $RANK of $WORLD_SIZE"
    )
    wanted = job(script, runPolicy={"backoffLimit": 2})
    async with node(yard, tmp_path / "node") as agent, yard.operator():
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(wanted))
        ended = await yard.reaches("real", "Succeeded")
        assert ended["status"]["backoffCount"] == 1
        for rank, pod in enumerate(sorted(await yard.pods("real"), key=_name)):
            assert pod["status"]["phase"] == "Succeeded"
            assert await log(agent, pod) == f"rank {rank} of 2\n"
        events, _ = await yard.client.list(EVENTS, yard.namespace)
        assert "Started" in {event["reason"] for event in events}


async def test_the_port_of_ssh_that_is_set_is_the_one_in_use(yard: Yard, tmp_path: Path) -> None:
    """By sshd on every worker, by the launch that waits for them, and by ssh as people type it."""
    require("ssh")
    require("sshd")
    greeting = "import socket; print(socket.create_connection(('worker-1', 2299)).recv(7).decode())"
    script = f'ssh worker-1 true && ssh -G worker-1 | grep "^port" && python3 -c "{greeting}"'
    wanted = manifests.deepspeed(config={"customCommand": script})
    wanted["metadata"]["name"] = "real"
    async with node(yard, tmp_path / "node") as agent, yard.operator("--ssh-port", "2299"):
        await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(wanted))
        await yard.reaches("real", "Succeeded", "DeepSpeedJob")
        first = min(await yard.pods("real"), key=_name)
        container = first["spec"]["containers"][0]["name"]
        chunks = [chunk async for chunk in agent.logs(first, container, LogOptions())]
        assert "port 2299\nSSH-2.0\n" in b"".join(chunks).decode()


async def test_a_deleted_job_takes_its_processes_along(yard: Yard, tmp_path: Path) -> None:
    if not yard.plane.collects:
        pytest.skip("not judged: no garbage collector deletes the pods")
    script = f"sleep 600 & wait # {tmp_path}"
    async with node(yard, tmp_path / "node"), yard.operator():
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job(script)))
        await yard.reaches("real", "Running")
        assert len(processes(script)) == 2
        await yard.kubectl("delete", "pytorchtrainingjob", "real")
        await until(yard.pods, lambda pods: not pods)
        assert not processes(script)


def processes(script: str) -> list[Path]:
    """Shells that run it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            argv = path.read_bytes().split(b"\0")
            found += [path] if argv[:3] == [b"sh", b"-c", script.encode()] else []
    return found


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
