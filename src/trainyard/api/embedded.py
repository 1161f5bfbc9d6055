"""What an embedded cluster that is up tells of itself, beside its jobs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainyard.client.cluster_target import first_of
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kube.client import Client
from trainyard.kube.resources import NODES, PODS
from trainyard.kube.transport import Request
from trainyard.machine.state_folder import RunningCluster

_SECONDS = 30.0
_FINDINGS_SECONDS = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """What it has, and what it does."""

    nodes: dict[str, dict[str, str]]
    """What each has to give, by its name: resources and amounts."""
    jobs: Counter[str]
    """By phase."""
    pods: int
    running: int
    """Of the pods."""


def state_of(cluster: RunningCluster) -> State:
    """What it has, and what it does; raises KubeError where it does not answer."""
    return _ask(cluster, _state)


def findings_of(cluster: RunningCluster) -> dict[str, Any]:
    """What fails in it at present, and what it cannot do; raises KubeError, or ValueError for an
    answer that cannot be read."""

    async def ask(client: Client) -> dict[str, Any]:
        answer = await client.raw(Request("GET", "/debug/findings"), "ask the cluster how it is")
        found: dict[str, Any] = json.loads(answer.body)
        return found

    return _ask(cluster, ask, _FINDINGS_SECONDS)


def kubeconfig_of(cluster: RunningCluster, asked: dict[str, Any]) -> dict[str, Any]:
    """The caller's kubeconfig, as the cluster makes it; raises KubeError."""
    from trainyard.embedded.apiserver.auth.kubeconfig_endpoint import PATH

    async def ask(client: Client) -> dict[str, Any]:
        request = Request("POST", PATH, json.dumps(asked).encode())
        config: dict[str, Any] = json.loads((await client.raw(request, "get a kubeconfig")).body)
        return config

    return _ask(cluster, ask)


def save_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Write a kubeconfig that only this user may read."""
    from trainyard.embedded.tls_files import write_kubeconfig

    write_kubeconfig(path, config)


async def _state(client: Client) -> State:
    nodes, _ = await client.list(NODES)
    pods, _ = await client.list(PODS)
    phases: Counter[str] = Counter()
    for kind in JOB_KINDS.values():
        jobs, _ = await client.list(kind.resource)
        phases.update((job.get("status") or {}).get("phase") or "Pending" for job in jobs)
    running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
    amounts = {
        str(node["metadata"]["name"]): (node.get("status") or {}).get("allocatable") or {}
        for node in nodes
    }
    return State(amounts, phases, len(pods), running)


def _ask(
    cluster: RunningCluster,
    question: Callable[[Client], Awaitable[T]],
    seconds: float = _SECONDS,
) -> T:
    async def ask() -> T:
        async with Client.unix(cluster.socket, timeout_seconds=seconds) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
