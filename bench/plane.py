"""The real control plane for measurements, and what its processes and clients cost."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import yaml
from tests.cluster.plane import RunningControlPlane
from tests.cluster.yard import until
from tools.control_plane import find

from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from trainyard.kube.transport import Request

JOBS = KINDS["PyTorchTrainingJob"].resource
_TICKS = os.sysconf("SC_CLK_TCK")
_serial = itertools.count(1)
_REST = 0.1
"""Seconds of processor time that a process may take in two seconds while it rests."""


@contextmanager
def running(*options: str) -> Iterator[RunningControlPlane | None]:
    """A control plane that serves our kinds, or None where there is none to be had.

    `options`: more of the API server's.
    """
    programs = find()
    if programs is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as name:
        plane = RunningControlPlane(programs, Path(name))
        plane.admission += options
        try:
            plane.start()
            asyncio.run(_define(plane, _definitions(plane)))
            asyncio.run(rests(plane.pids))  # it describes all kinds anew for every new one
            yield plane
        finally:
            plane.stop()


def _definitions(plane: RunningControlPlane) -> list[dict[str, Any]]:
    version = ".".join(map(str, plane.version))
    text = subprocess.run(
        [sys.executable, "-m", "trainyard.cli.main", "crds", "--kubernetes-version", version],
        capture_output=True,
        check=True,
    ).stdout
    documents = yaml.safe_load_all(text)
    return [each for each in documents if each["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind]


async def _define(plane: RunningControlPlane, definitions: list[dict[str, Any]]) -> None:
    async with await Client.from_kubeconfig(plane.kubeconfig) as client:
        for definition in definitions:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        for kind in KINDS.values():
            await until(partial(_is_served, client, kind.resource), bool)


async def _is_served(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource)
    except NotFound:
        return False
    return True


async def namespace(client: Client) -> str:
    """A new one; it stays, since its deletion would go on beside what is measured next."""
    name = f"bench-{next(_serial)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name


async def count(client: Client, resource: Resource, where: str) -> int:
    """How many there are, at the cost of one."""
    url = f"{resource.path(where)}?limit=1"
    page = orjson.loads((await client.raw(Request("GET", url), "count")).body)
    metadata: dict[str, Any] = page["metadata"]
    return len(page["items"] or ()) + int(metadata.get("remainingItemCount") or 0)


async def collect_garbage(client: Client) -> None:
    """Have the API server collect its garbage, so that all begin alike: when it does is chance, and
    once takes as long as a tenth of what is measured."""
    await client.raw(Request("GET", "/debug/pprof/heap?gc=1"), "profile")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has had so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def rests(pids: Sequence[int]) -> None:
    """Wait until these processes have next to nothing to do."""

    async def spent() -> float:
        before = sum(map(cpu_seconds, pids))
        await asyncio.sleep(2)
        return sum(map(cpu_seconds, pids)) - before

    await until(spent, lambda seconds: seconds < _REST * len(pids), 600)


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of a process; `VmHWM`: the most it has ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} is gone")


def job(name: str, replicas: int) -> dict[str, Any]:
    """A job whose pods nobody starts."""
    container = {"name": "pytorch", "image": "python", "command": ["train"]}
    worker = {
        "type": "worker",
        "replicas": replicas,
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [worker]},
    }
