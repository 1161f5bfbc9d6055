"""How soon an end is noticed, and how soon what was ended is gone, in a durable cluster.

Each figure is the median of jobs that run one after the other. Clocks start right before the signal
or the request, and stop when a client of the API that asks all the time is told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.commands import seconds, state
from bench.launchers import missing_programs
from trainyard.client.submission import resource_of
from trainyard.kube.client import Client
from trainyard.kube.embedded import find_cluster
from trainyard.kube.resources import PODS

Row = tuple[str, float | None, str, float | None]
Pods = list[dict[str, Any]]
ROUNDS = 3
_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.005
_KILLED = "`kill -9` of a rank, to its pod's status"
_DELETED = "deletion of a job with 4 replicas, to no pod"
_PAUSED = "pause of a job with 4 replicas, to no pod"
_ASKED = "SIGTERM to a worker of a DeepSpeedJob, to its exit"

PLAIN = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {{name: "{name}"}}
spec:
  replicaSpecs:
    - type: worker
      replicas: 4
      restartPolicy: Never
      template:
        spec:
          containers:
            - {{name: main, image: busybox, command: [sleep, "{seconds}"]}}
"""
DEEPSPEED = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: DeepSpeedJob
metadata: {{name: "{name}"}}
spec:
  config: {{slotsPerWorker: 1, run: {{python: ["{folder}/train.py", "{mark}"]}}}}
  worker:
    replicas: 2
    restartPolicy: Never
    template:
      spec:
        containers:
          - {{name: worker, image: image}}
"""
TRAIN = """\
import os, pathlib, sys, time
pathlib.Path(sys.argv[-1] + os.environ["RANK"]).touch()
time.sleep(3600)
"""


def measure() -> list[Row]:
    """One row for each sort of end; one without a figure where a program is missing."""
    with state() as folder:
        seconds("up")
        ends = _Ends(folder)
        figures = {
            _KILLED: (ends.killed, 2.0),
            _DELETED: (ends.deleted, 2.0),
            _PAUSED: (ends.paused, 2.0),
        }
        rows: list[Row] = [
            (what, ends.median(end), "s", target) for what, (end, target) in figures.items()
        ]
        if lacking := missing_programs():
            return [*rows, (f"{_ASKED}: skipped, no {', '.join(lacking)} here", None, "", None)]
        return [*rows, (_ASKED, ends.median(ends.asked), "s", 2.0)]


class _Ends:
    """Jobs that are brought to an end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        (self.folder / "train.py").write_text(TRAIN)
        self._number = 0

    def median(self, end: Callable[[], Coroutine[Any, Any, float]]) -> float:
        """Of several such ends, in seconds."""
        return statistics.median(asyncio.run(end()) for _ in range(ROUNDS))

    async def killed(self) -> float:
        """From SIGKILL to the pod's phase."""
        async with self._plain() as (client, _, length):
            (first, *_) = _processes("sleep", length)
            return await _took(
                client,
                lambda: os.kill(first, signal.SIGKILL),
                lambda pods: any(pod["status"]["phase"] == "Failed" for pod in pods),
            )

    async def deleted(self) -> float:
        """From DELETE until no pod is left."""
        async with self._plain() as (client, name, _):
            delete = client.delete(resource_of("PyTorchTrainingJob"), name, "default")
            return await _took(client, delete, lambda pods: not pods)

    async def paused(self) -> float:
        """From the change of `runMode.pause` until no pod is left."""
        async with self._plain() as (client, name, _):
            patch = {"spec": {"runMode": {"pause": {"enabled": True}}}}
            pause = client.patch(resource_of("PyTorchTrainingJob"), name, patch, "default")
            return await _took(client, pause, lambda pods: not pods)

    async def asked(self) -> float:
        """From the deletion of a worker's pod, which sends SIGTERM, until it is gone."""
        mark = self.folder / f"{self._number}-rank-"
        name = self._submit(DEEPSPEED, mark=str(mark))
        async with _client() as client:
            await _until(Path(f"{mark}1").exists)
            pods, _ = await client.list(PODS, "default")
            worker = next(p["metadata"] for p in pods if p["metadata"]["name"].endswith("-1"))
            took = await _took(
                client,
                client.delete(PODS, worker["name"], "default"),
                lambda pods: worker["uid"] not in {pod["metadata"]["uid"] for pod in pods},
            )
        seconds("delete", name, "--ignore-not-found", "--wait")
        return took

    @asynccontextmanager
    async def _plain(self) -> AsyncIterator[tuple[Client, str, str]]:
        """A job whose replicas all sleep; for how long, by which they are found."""
        length = f"{100_000 + self._number}"
        name = self._submit(PLAIN, seconds=length)
        seconds("wait", name, "--for", "phase=Running")
        async with _client() as client:
            await _until(lambda: sum(1 for _ in _processes("sleep", length)) == 4)
            yield client, name, length
        seconds("delete", name, "--ignore-not-found", "--wait")

    def _submit(self, manifest: str, **values: str) -> str:
        name = f"job-{self._number}"
        self._number += 1
        file = self.folder / f"{name}.yaml"
        file.write_text(manifest.format(name=name, folder=self.folder, **values))
        seconds("submit", "-f", str(file))
        return name


async def _took(
    client: Client, act: Callable[[], None] | Awaitable[object], holds: Callable[[Pods], bool]
) -> float:
    """Seconds from the act until the pods are so."""
    started = time.perf_counter()
    if isinstance(act, Awaitable):
        await act
    else:
        act()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            pods, _ = await client.list(PODS, "default")
            if holds(pods):
                return time.perf_counter() - started
            await asyncio.sleep(_POLL_SECONDS)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            if holds():
                return
            await asyncio.sleep(_POLL_SECONDS)


def _client() -> Client:
    cluster = find_cluster()
    if cluster is None:
        raise RuntimeError("the cluster is gone")
    return Client.unix(cluster.socket)


def _processes(*command: str) -> Iterator[int]:
    """Those that run exactly this."""
    wanted = b"".join(word.encode() + b"\0" for word in command)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                yield int(entry.name)
