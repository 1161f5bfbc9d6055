"""Pods on the node agent: from bound in the registry to the first instruction of the program.

`measure()` gives rows (what, value, unit, target); run as a program it prints them. The program
is one that writes the time, so that fork, namespaces, mounts and exec are all counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.yardstick import bare_start, budget
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.agent import NodeAgent
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import PodRuntimeHandle, start_pod_runtime
from trainyard.embedded.registry import Registry
from trainyard.podruntime.log_reader import LogOptions

ALONE, TOGETHER, ROUNDS, MANY = 60, 8, 12, 100
_PAUSE_SECONDS = 0.05
"""Before a pod that starts alone: by then what the one before has left behind is cleared away."""
_IN_STARTS = "the same, in starts of a bare interpreter"
_TELL_TIME = ["/bin/date", "+%s.%N"]


class Row(NamedTuple):
    """One measurement; `target` is an upper limit, None where there is none."""

    what: str
    value: float
    unit: str
    target: float | None


def measure() -> list[Row]:
    """Pods alone, one right after the other, eight at once, and a hundred that stay."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        folder = os.path.join(top, "state")
        pod_runtime = start_pod_runtime(folder, die_with_parent=True)
        try:
            return asyncio.run(_measure(pod_runtime, folder))
        finally:
            pod_runtime.kill()


async def _measure(pod_runtime: PodRuntimeHandle, folder: str) -> list[Row]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    work = os.path.join(os.path.dirname(folder), "work")
    os.mkdir(work)
    agent = NodeAgent(
        registry, PodRuntimeClient(pod_runtime), NodeSettings("bench", folder, working_dir=work)
    )
    task = asyncio.create_task(agent.run())
    bench = _Bench(registry, agent, pod_runtime)
    rows = [*await bench.alone(), *await bench.together(), *await bench.many()]
    task.cancel()
    await asyncio.wait([task])
    await agent.shut_down()
    return rows


class _Bench:
    def __init__(self, registry: Registry, agent: NodeAgent, pod_runtime: PodRuntimeHandle) -> None:
        self._registry, self._agent, self._pod_runtime = registry, agent, pod_runtime
        self._number = 0

    async def alone(self) -> list[Row]:
        alone: list[float] = []
        in_a_row: list[float] = []
        bare: list[float] = []
        for _ in range(ROUNDS):
            bare.append(await asyncio.to_thread(bare_start) * 1e3)
            for _ in range(ALONE // ROUNDS):
                await asyncio.sleep(_PAUSE_SECONDS)
                alone.append(await self._start())
            in_a_row += [await self._start() for _ in range(ALONE // ROUNDS)]
        p50, next_p50 = statistics.median(alone), statistics.median(in_a_row)
        text = f"pod start, {{}}, {self._agent.isolation}: p50"
        return [
            Row(text.format("alone"), p50, "ms", None),
            Row(_IN_STARTS, p50 / statistics.median(bare), "x", budget(0.45)),
            Row(text.format("right after another"), next_p50, "ms", None),
            Row(_IN_STARTS, next_p50 / statistics.median(bare), "x", budget(0.53)),
        ]

    async def together(self) -> list[Row]:
        times: list[float] = []
        bare: list[float] = []
        for _ in range(ROUNDS):
            bare.append(await asyncio.to_thread(bare_start) * 1e3)
            times += await asyncio.gather(*(self._start() for _ in range(TOGETHER)))
        text = f"pod start, {TOGETHER} at once: "
        p50 = statistics.median(times)
        return [
            Row(text + "p50", p50, "ms", None),
            Row(_IN_STARTS, p50 / statistics.median(bare), "x", budget(2.3)),
            Row(text + "p95", statistics.quantiles(times, n=20)[-1], "ms", None),
        ]

    async def many(self) -> list[Row]:
        before = _private_kib(self._pod_runtime.pid)
        started = time.perf_counter()
        names = [await self._create(["sleep", "1000"]) for _ in range(MANY)]
        for name in names:
            await self._until(name, "Running")
        rate = MANY / (time.perf_counter() - started)
        pids = _first_processes(self._pod_runtime.pid)
        each = statistics.mean(_private_kib(pid) for pid in pids)
        pod_runtime = _private_kib(self._pod_runtime.pid)
        started = time.perf_counter()
        for name in names:
            await self._registry.delete("pods", "default", name, Deletion(grace_seconds=0))
        while True:
            await asyncio.sleep(0.002)
            if not _first_processes(self._pod_runtime.pid):
                break
        killed = (time.perf_counter() - started) * 1e3
        return [
            Row(f"{MANY} pods started, pods/s", rate, "/s", None),
            Row("pod runtime, own memory", before / 1024, "MiB", None),
            Row(f"pod runtime, own memory with {MANY} pods", pod_runtime / 1024, "MiB", None),
            Row("a pod's supervisor, own memory", each / 1024, "MiB", None),
            Row(f"{MANY} pods killed and reaped", killed, "ms", None),
        ]

    async def _create(self, command: list[str]) -> str:
        self._number += 1
        name = f"pod-{self._number}"
        container = {"name": "main", "image": "none", "command": command}
        spec: dict[str, Any] = {"nodeName": "bench", "restartPolicy": "Never"}
        pod = {"metadata": {"name": name}, "spec": {**spec, "containers": [container]}}
        await self._registry.create("pods", pod)
        return name

    async def _until(self, name: str, phase: str) -> dict[str, Any]:
        while True:
            pod = self._registry.get("pods", "default", name)
            if pod["status"].get("phase") == phase:
                return pod
            await asyncio.sleep(0.001)

    async def _start(self) -> float:
        """Milliseconds from the bound pod's creation to the program's first instruction."""
        before = time.time()
        pod = await self._until(await self._create(_TELL_TIME), "Succeeded")
        text = b"".join([chunk async for chunk in self._agent.logs(pod, "main", LogOptions())])
        return (float(text) - before) * 1e3


def _first_processes(pod_runtime: int) -> list[int]:
    """Those of containers, among the shim's children."""
    found = []
    for pid in Path(f"/proc/{pod_runtime}/task/{pod_runtime}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "pod-init\n":
                found.append(int(pid))
    return found


def _private_kib(pid: int) -> int:
    """Memory of a process that it shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.stderr.write("without root: rootless pods\n")
    for row in measure():
        limit = "" if row.target is None else f"  (at most {row.target:g})"
        sys.stdout.write(f"{row.what}: {row.value:.2f} {row.unit}{limit}\n")
