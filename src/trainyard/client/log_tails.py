"""The last lines of the logs of a job's replicas, with their times: what a failure is read from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainyard.client.job_view import Job
from trainyard.client.kept_logs import kept_logs, log_of, read_kept
from trainyard.client.log_streams import LogRequest
from trainyard.client.pod_views import PodView
from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.podruntime.log_reader import MISSING

_LINES = 600
"""Of C++ stacks and of reports there may be hundreds after the traceback that matters."""
_BYTES = 1 << 18
_LONGEST = 4000
_AT_ONCE = 16


class Tail(NamedTuple):
    """The last lines of one container's log, oldest first, as a terminal would show them."""

    lines: Sequence[str] = ()
    times: Sequence[str] = ()
    """When each was written, RFC 3339; empty where that is not known."""
    path: str = ""
    """The file on this machine, where there is one."""

    def time_of(self, index: int) -> str:
        """When a line was written; empty where that is not known."""
        return self.times[index] if index < len(self.times) else ""


async def tails(
    client: Client, job: Job, pods: Sequence[PodView], folder: Path | None = None
) -> dict[str, Tail]:
    """By pod, the tails of what failed in these; of a pod that is gone what is kept of it.

    `folder` is the embedded cluster's. A log that cannot be read is left out.
    """
    limit = asyncio.Semaphore(_AT_ONCE)

    async def read(pod: PodView) -> tuple[str, Tail]:
        failed = job.failed_container(pod)
        container = failed.name if failed else job.training_container(pod)
        path = log_of(folder, pod, container) if folder else None
        async with limit:
            found = await tail(client, pod, container)
        return pod.name, found._replace(path=str(path or ""))

    found = dict(await asyncio.gather(*(read(pod) for pod in pods if pod.containers)))
    return {name: each for name, each in found.items() if each.lines}


async def kept_tails(folder: Path, job: Job, names: Sequence[str]) -> dict[str, Tail]:
    """The same of pods that are gone, by their names, as far as their logs are kept."""
    found = {}
    for replica, path in kept_logs(folder, job):
        if (name := f"{job.base}-{replica}") in names:
            lines = read_kept(path, LogRequest(tail=_LINES, timestamps=True))
            found[name] = (await _collect(lines))._replace(path=str(path))
    return found


async def tail(client: Client, pod: PodView, container: str) -> Tail:
    """Of one container; empty if it cannot be read."""
    wanted = LogRequest(tail=_LINES, timestamps=True)
    try:
        return await _collect(client.logs(pod.name, pod.namespace, container, wanted))
    except KubeError:
        return Tail()


async def _collect(chunks: AsyncGenerator[bytes]) -> Tail:
    data = bytearray()
    async with contextlib.aclosing(chunks) as stream:
        async for chunk in stream:
            data += chunk
            if len(data) > 2 * _BYTES:
                del data[:-_BYTES]
    text = bytes(data[-_BYTES:]).decode(errors="replace")
    lines, times = [], []
    for line in text.split("\n"):
        time, _, text = line.partition(" ")
        if text.strip("\r") and text != MISSING:
            lines.append(text.rstrip("\r").rpartition("\r")[2][:_LONGEST])
            times.append(time)
    return Tail(lines, times)
