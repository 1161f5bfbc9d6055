"""A node with a registry and nothing else, for tests of the node agent with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.node.agent import NodeAgent
from trainyard.embedded.node.containers.cgroups import ClusterGroups, ContainerLimits
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import (
    Isolation,
    PodRuntimeHandle,
    start_pod_runtime,
)
from trainyard.embedded.registry import Registry
from trainyard.embedded.service_supervisor import Supervisor
from trainyard.kube.errors import NotFound
from trainyard.podruntime.log_reader import LogOptions

NODE = "node-under-test"
PATIENCE = 120.0
Object = dict[str, Any]


class Cluster:
    """Creates pods bound to the node and waits for what becomes of them."""

    def __init__(self, registry: Registry, agent: NodeAgent, state_dir: Path, here: str) -> None:
        """``path``: the shim's memory, as this process reaches it."""
        self.registry = registry
        self.agent = agent
        self.state_dir = state_dir
        self._memory = here
        self.task = asyncio.create_task(agent.run())

    async def create(self, name: str, command: list[str] | None = None, **spec: Any) -> Object:
        """A pod with one container ``main``; ``spec`` may replace anything, also ``metadata``."""
        metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
        container = {"name": "main", "image": "image", **spec.pop("container", {})}
        if command is not None:
            container["command"] = command
        pod_spec = {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        }
        return await self.registry.create("pods", {"metadata": metadata, "spec": pod_spec})

    def pod(self, name: str) -> Object:
        return self.registry.get("pods", "default", name)

    async def until(self, name: str, holds: Callable[[Object], bool]) -> Object:
        """Wait until the pod is as wanted; shows the pod when that takes too long."""
        patience = time.monotonic() + PATIENCE
        while True:
            pod = self.pod(name)
            if holds(pod):
                return pod
            assert time.monotonic() < patience, f"still not so: {pod['status']}"
            await asyncio.sleep(0.005)

    async def phase(self, name: str, *phases: str) -> Object:
        return await self.until(name, lambda pod: pod["status"].get("phase") in phases)

    async def gone(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.until(name, lambda _: False)

    async def run(self, name: str, command: list[str], **spec: Any) -> Object:
        """Create a pod and wait for its end."""
        await self.create(name, command, **spec)
        return await self.phase(name, "Succeeded", "Failed")

    async def log(
        self, name: str, container: str = "main", *, previous: bool = False, **options: Any
    ) -> str:
        wanted, pod = LogOptions(**options), self.pod(name)
        chunks = [c async for c in self.agent.logs(pod, container, wanted, previous=previous)]
        return b"".join(chunks).decode()

    async def shell(self, name: str, script: str, **spec: Any) -> str:
        """Run a shell script in a pod of its own; it must succeed. Returns what it printed."""
        pod = await self.run(name, ["sh", "-c", script], **spec)
        text = await self.log(name)
        assert pod["status"]["phase"] == "Succeeded", (text, pod["status"])
        return text

    async def printed(self, name: str) -> None:
        """Wait until the pod's log has something."""
        await self.phase(name, "Running", "Succeeded", "Failed")
        patience = time.monotonic() + PATIENCE
        while not await self.log(name):
            assert time.monotonic() < patience, "nothing was printed"
            await asyncio.sleep(0.01)

    async def exec(self, name: str, script: str) -> tuple[int, str]:
        session = await self.agent.exec(self.pod(name), "main", ["sh", "-c", script])
        text = b"".join([chunk.data async for chunk in session.output()]).decode()
        code = await session.wait()
        await session.close()
        return code, text

    def memory(self) -> list[str]:
        """The folders of pods in the shim's memory."""
        folder = os.path.join(self._memory, "pods")
        return os.listdir(folder) if os.path.isdir(folder) else []

    def events(self, reason: str) -> list[str]:
        return [e["message"] for e in self.registry.list("events") if e["reason"] == reason]


@contextlib.asynccontextmanager
async def cluster(
    state_dir: Path,
    *,
    isolation: Isolation = "auto",
    handle: PodRuntimeHandle | None = None,
    registry: Registry | None = None,
    shut_down: bool = True,
    findings: Supervisor | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """A running agent; at the end its shim and all pods are ended, unless told otherwise."""
    if handle is None:
        handle = start_pod_runtime(state_dir, isolation=isolation, die_with_parent=True)
    if registry is None:
        registry = Registry(resources=RESOURCES)
        await registry.ensure_system_objects()
    settings.setdefault("working_dir", str(state_dir.parent))
    node_settings = NodeSettings(NODE, str(state_dir), **settings)
    client = PodRuntimeClient(handle)
    agent = NodeAgent(registry, client, node_settings, findings)
    running = Cluster(registry, agent, state_dir, client.runtime_folder.path)
    try:
        yield running
    finally:
        running.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running.task
        if shut_down:
            await agent.shut_down()
            await asyncio.to_thread(handle.kill)


def is_alive(pid: int) -> bool:
    """Whether process ``pid`` exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def processes_with(marker: str) -> list[int]:
    """Living processes whose command line or environment contains ``marker``."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and is_alive(int(name)):
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError), open(f"/proc/{name}/{part}", "rb") as file:
                    if marker.encode() in file.read() and int(name) != os.getpid():
                        found.append(int(name))
                        break
    return found


async def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    patience = time.monotonic() + seconds
    while True:
        if holds():
            return
        assert time.monotonic() < patience, "still not so"
        await asyncio.sleep(0.01)


def are_limits_enforced() -> bool:
    """Whether control groups can be written here."""
    groups = ClusterGroups(f"/probe/{os.getpid()}")
    made = groups.create("probe", ContainerLimits(1 << 30, 0))
    groups.close()
    return bool(made)
