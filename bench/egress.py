"""The way out of pods, beside the machine's own: streams up and down, and connections.

The machine and what is outside of it are network namespaces with a cable between them, so that no
network has a say. Rounds of both take turns, and the best one counts: of a stream, and of the
median of connections. Needs root.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.egress import world
from tests.embedded.node_cluster import Cluster, cluster

from trainyard.podruntime import syscalls

_SOURCE_PORT, _SINK_PORT = 9001, 9002
_ROUNDS, _SECONDS, _CONNECTIONS = 5, 1.0, 300
_BUFFER = 1 << 20
_GIGABIT, _MILLISECOND = 1e9, 1e-3

# Run in a pod and on the machine alike; prints bits a second up and down, and seconds to connect.
CLIENT = f"""
import json, socket, statistics, time
def stream(port, move):
    with socket.create_connection(({world.SERVER!r}, port)) as one:
        moved, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < {_SECONDS}:
            moved += move(one)
        return 8 * moved / spent
block, times = memoryview(bytearray({_BUFFER})), []
up = stream({_SINK_PORT}, lambda one: one.send(block))
down = stream({_SOURCE_PORT}, lambda one: one.recv_into(block))
for _ in range({_CONNECTIONS}):
    began = time.perf_counter()
    one = socket.create_connection(({world.SERVER!r}, {_SINK_PORT}))
    times.append(time.perf_counter() - began)
    one.close()
print(json.dumps([up, down, statistics.median(times)]), flush=True)
"""


class Row(NamedTuple):
    """One measurement; `target` is a lower limit for a rate, else an upper one."""

    what: str
    value: float | None
    unit: str
    target: float | None


class _Round(NamedTuple):
    up: float
    down: float
    connect: float


def measure() -> list[Row]:
    """Streams up and down, and connections, of a pod and of the machine."""
    if os.geteuid() != 0:
        return [Row("the way out of pods: root is needed to measure it", None, "", None)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        argv = [sys.executable, "-m", "bench.egress", folder]
        done = subprocess.run(argv, capture_output=True, check=True)
    direct, pod = ([_Round(*each) for each in rounds] for rounds in json.loads(done.stdout))
    return [
        *_streams("up", [r.up for r in direct], [r.up for r in pod]),
        *_streams("down", [r.down for r in direct], [r.down for r in pod]),
        Row("a connection of the machine", _connect(direct), "ms", None),
        Row("a connection of a pod: p50", _connect(pod), "ms", 0.3),
    ]


def _streams(way: str, direct: list[float], pod: list[float]) -> list[Row]:
    return [
        Row(f"a stream of the machine, {way}", max(direct) / _GIGABIT, "Gbit/s", None),
        Row(f"a stream of a pod, {way}", max(pod) / _GIGABIT, "Gbit/s", 5.0),
    ]


def _connect(rounds: list[_Round]) -> float:
    return min(each.connect for each in rounds) / _MILLISECOND


def _serve() -> None:
    for port, serve in ((_SOURCE_PORT, _send), (_SINK_PORT, _drop)):
        listener = socket.create_server((world.SERVER, port), backlog=1024)
        if not os.fork():
            syscalls.die_with_parent()
            while True:
                client, _ = listener.accept()
                with client:
                    serve(client)
        listener.close()


def _send(client: socket.socket) -> None:
    block = bytes(_BUFFER)
    try:
        while True:
            client.send(block)
    except ConnectionError:
        pass


def _drop(client: socket.socket) -> None:
    block = bytearray(_BUFFER)
    try:
        while client.recv_into(block, 0, socket.MSG_TRUNC):  # not copied
            pass
    except ConnectionError:
        pass


async def _rounds(folder: Path) -> list[list[list[float]]]:
    direct, pod = [], []
    async with cluster(folder / "state") as node:
        await _round(node, "warm-up")
        for number in range(_ROUNDS):
            told = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CLIENT), stdout=subprocess.PIPE
            )
            direct.append(json.loads((await told.communicate())[0]))
            pod.append(await _round(node, f"round-{number}"))
    return [direct, pod]


async def _round(node: Cluster, name: str) -> list[float]:
    await node.run(name, [sys.executable, "-c", CLIENT], container={"workingDir": "/"})
    told: list[float] = json.loads(await node.log(name))
    return told


def main(folder: Path, *inside: str) -> int:
    """On a machine of its own print what ``_rounds`` gives."""
    if inside:
        print(json.dumps(asyncio.run(_rounds(folder))))
        return 0
    return world.run(folder, _serve, sys.executable, "-m", "bench.egress", str(folder), "inside")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
