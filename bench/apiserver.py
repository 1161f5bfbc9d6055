"""The embedded API server under load: durable creates per second, latency, start-up, memory.

The server runs in a process of its own over a Unix socket; clients share this process, as the
controller does. `measure()` gives rows (what, value, unit, target); run as a program it prints
them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop

from trainyard.kube.transport import Request
from trainyard.kube.unix_transport import UnixTransport

CREATES = 4_000
WATCHED = 2_000
_PODS = "/api/v1/namespaces/default/pods"

SERVER = """
import asyncio, sys
from pathlib import Path
import uvloop
from trainyard.composition.garbage_collection import collect_garbage_again
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.registry import Registry
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.storage.store import Store

async def main():
    collect_garbage_again()
    folder = Path(sys.argv[1])
    registry = Registry(Store(folder / "state.db"), resources=RESOURCES)
    await registry.ensure_system_objects()
    await ApiServer(registry).serve_unix(folder / "api.sock")
    await asyncio.Event().wait()

uvloop.run(main())
"""


class Row(NamedTuple):
    """One measurement; `target` is an upper or lower limit, None where there is none."""

    what: str
    value: float
    unit: str
    target: float | None


def measure() -> list[Row]:
    """Start-up, then creates by 1, 8 and 32 clients, lists and watches on the same server."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _server(folder) as server:
            started = _wait_for(folder / "api.sock", server[1])
            rows = uvloop.run(_load(folder / "api.sock"))
            memory = _resident_mb(server[0].pid)
    return [
        Row("API server: process start to the first answer", started, "s", 0.15),
        *rows,
        Row("API server: resident with all of these pods", memory, "MB", None),
    ]


@contextmanager
def _server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)])
    try:
        yield process, started
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _wait_for(path: Path, started: float) -> float:
    import socket

    end = started + 10
    while time.perf_counter() < end:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except OSError:
                time.sleep(0.001)
                continue
            client.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(1000)
            return time.perf_counter() - started
    raise RuntimeError("the API server did not start within 10 s")


async def _load(path: Path) -> list[Row]:
    transport = UnixTransport(path)
    rows = []
    try:
        for clients in (1, 8, 32):
            rows += await _creates(transport, clients)
        rows += await _watch(transport)
        rows.append(await _list(transport))
    finally:
        await transport.aclose()
    return rows


async def _list(transport: UnixTransport) -> Row:
    started = time.perf_counter()
    async with transport.stream(Request("GET", _PODS), 60) as response:
        body = b"".join([chunk async for chunk in response.chunks])
    took = time.perf_counter() - started
    count = len(orjson.loads(body)["items"])
    return Row(f"API server: list of {count:,} pods ({len(body) >> 20} MiB)", took, "s", None)


async def _creates(transport: UnixTransport, clients: int) -> list[Row]:
    bodies = iter([pod(f"c{clients}-{number}") for number in range(CREATES)])
    latencies: list[float] = []

    async def client() -> None:
        for body in bodies:
            started = time.perf_counter()
            answer = await transport.request(Request("POST", _PODS, body), 30)
            assert answer.status == 201, answer.body
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    rate = CREATES / (time.perf_counter() - started)
    percentile = statistics.quantiles(latencies, n=100)
    many = f"{clients} client{'s' if clients > 1 else ''}"
    return [
        Row(f"API server: durable pod creates, {many}", rate, "1/s", None),
        Row(f"API server: create latency p50, {many}", percentile[49] * 1e3, "ms", None),
        Row(f"API server: create latency p99, {many}", percentile[98] * 1e3, "ms", None),
    ]


async def _watch(transport: UnixTransport) -> list[Row]:
    """Creates while three watchers receive every one of them."""
    listed = await transport.request(Request("GET", f"{_PODS}?limit=1"), 30)
    version = orjson.loads(listed.body)["metadata"]["resourceVersion"]
    path = f"{_PODS}?watch=1&resourceVersion={version}"

    async def watcher() -> None:
        seen = 0
        async with transport.stream(Request("GET", path), 10) as response:
            async for chunk in response.chunks:
                seen += chunk.count(b'{"type":"ADDED"')
                if seen >= WATCHED:
                    return

    bodies = iter([pod(f"w-{number}") for number in range(WATCHED)])

    async def client() -> None:
        for body in bodies:
            await transport.request(Request("POST", _PODS, body), 30)

    async with asyncio.timeout(120):
        started = time.perf_counter()
        await asyncio.gather(*(watcher() for _ in range(3)), *(client() for _ in range(32)))
    rate = WATCHED / (time.perf_counter() - started)
    return [Row("API server: creates seen by 3 watchers, 32 clients", rate, "1/s", None)]


def pod(name: str) -> bytes:
    """A pod of a training job: 2.8 KB."""
    environment = [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(20)]
    container: dict[str, Any] = {
        "name": "pytorch",
        "image": "example/train:latest",
        "command": ["torchrun", "--nnodes=4", "--nproc_per_node=1", "train.py"],
        "env": environment,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {f"label-{n}": "value" for n in range(8)}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    return orjson.dumps(pod)


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    for row in measure():
        print(f"{row.what:60} {row.value:10.1f} {row.unit}")
