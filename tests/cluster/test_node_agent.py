"""The node agent as the kubelet of a real cluster: jobs run to their end with real processes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.real_node import node
from tests.cluster.yard import Object, Yard, pytorch_job, until
from tests.tools import require
from tests.unit.kinds import manifests
from trainyard.embedded.node.agent import NodeAgent
from trainyard.kube.resources import EVENTS
from trainyard.podruntime.log_reader import LogOptions


def job(script: str, **spec: object) -> Object:
    made = pytorch_job("real", **spec)
    container = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", script]
    return made


async def log(agent: NodeAgent, pod: Object) -> str:
    return b"".join([chunk async for chunk in agent.logs(pod, "pytorch", LogOptions())]).decode()


async def test_a_job_runs_to_its_end(yard: Yard, tmp_path: Path) -> None:
    """Replicas find rank 0 by its name, once the node knows the Service, and a failed one starts
    again."""
    (shared := tmp_path / "shared").mkdir()
    script = (
        f"until getent hosts $MASTER_ADDR > /dev/null; do sleep 0.1; done; cd {shared}; "
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
