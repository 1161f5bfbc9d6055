"""What replicas use, as clusters with and without a metrics server tell it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trainyard.client.metrics_client import NoMetrics, Used, pod_metrics, used_by, used_by_pods
from trainyard.kube.client import Client
from trainyard.kube.errors import Forbidden

METRICS = {
    "metadata": {"name": "digits-worker-0", "namespace": "default"},
    "containers": [
        {"name": "pytorch", "usage": {"cpu": "1500000000n", "memory": "204800Ki"}},
        {"name": "side", "usage": {"cpu": "250m", "memory": "8Mi"}},
        {"name": "new"},
    ],
}


@asynccontextmanager
async def answering(folder: Path, code: int, body: object) -> AsyncIterator[Client]:
    """An API server that gives this answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {code} -\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + text)
        await writer.drain()
        writer.close()

    socket = str(folder / "api.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, Client.unix(socket) as client:
        yield client


async def test_containers_of_a_pod_are_added_up(tmp_path: Path) -> None:
    async with answering(tmp_path, 200, {"items": [METRICS]}) as client:
        used = await used_by_pods(client, "default", "")
    assert used == {("default", "digits-worker-0"): Used(1.75, 208 << 20)}


def test_figures_are_those_that_people_read() -> None:
    gpus = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1500m", "nvidia.com/gpu-memory": "2Gi"}
    figures = Used.of([gpus]).figures()
    assert figures == {"cpu": "1000m", "memory": "1024Mi", "gpu": "150%", "gpu_memory": "2048Mi"}
    assert used_by(METRICS).figures() == {"cpu": "1750m", "memory": "208Mi"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (404, "context real does not tell what its pods use: .*Install metrics-server: https://"),
        (503, "context real does not tell what its pods use: .*look at its metrics server"),
    ],
)
async def test_a_cluster_without_a_metrics_server_is_told(
    tmp_path: Path, code: int, said: str
) -> None:
    status = {"kind": "Status", "message": "the server could not do it", "code": code}
    async with answering(tmp_path, code, status) as client:
        with pytest.raises(NoMetrics, match=said):
            await pod_metrics(client, "default", "", "context real")


async def test_who_may_not_ask_is_told_so(tmp_path: Path) -> None:
    status = {"kind": "Status", "message": "pods.metrics.k8s.io is forbidden", "code": 403}
    async with answering(tmp_path, 403, status) as client:
        with pytest.raises(Forbidden, match="is forbidden"):
            await pod_metrics(client, "default", "")
