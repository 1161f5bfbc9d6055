"""What is said of a cluster that was never given trainyard's definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_lookup import list_jobs
from trainyard.client.submission import submit
from trainyard.kinds.shared.install_commands import command_for_everything
from trainyard.kube.client import Client
from trainyard.manifest.reader import read_objects

SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
CONTAINER = {"name": "main", "image": "x", "command": ["true"]}
JOB = {
    "apiVersion": "batch.tensorstack.dev/v1beta1",
    "kind": "GenericJob",
    "metadata": {"name": "digits"},
    "spec": {
        "replicaSpecs": [
            {"type": "worker", "replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}
        ]
    },
}


@asynccontextmanager
async def bare(folder: Path, minor: str, asked: list[str]) -> AsyncIterator[ClusterTarget]:
    """A Kubernetes without our kinds, which answers as kube-apiserver does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]
        asked.append(line)
        body = b"404 page not found\n"
        if " /version" in line:
            body = json.dumps({"major": "1", "minor": minor}).encode()
        code = 200 if " /version" in line else 404
        head = f"HTTP/1.1 {code} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    socket = str(folder / "api.sock")
    server = await asyncio.start_unix_server(serve, socket)
    async with server, Client.unix(socket) as client:
        yield ClusterTarget(client, "default", "the cluster lab")


@pytest.mark.parametrize(("minor", "option"), [("20", " --kubernetes-version 1.20"), ("31+", "")])
async def test_whoever_submits_or_lists_is_told_what_to_install(
    tmp_path: Path, minor: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_STATE_DIR", str(tmp_path / "state"))
    install = f"`trainyard crds{option} | kubectl apply --server-side -f -`"
    asked: list[str] = []
    documents = read_objects([SETTINGS, JOB]).documents
    assert len(documents) == 2
    async with bare(tmp_path, minor, asked) as target:
        with pytest.raises(CommandError, match="the cluster lab does not know") as of_list:
            await list_jobs(target, None)
        with pytest.raises(CommandError, match="the cluster lab does not know") as of_submit:
            await submit(target, documents)
    assert install in str(of_list.value)
    assert install in str(of_submit.value)
    posts = [line for line in asked if line.startswith("POST")]
    assert all("?dryRun=All&" in line for line in posts), "nothing is left there"


def test_older_servers_are_named_where_the_operator_is_to_be_installed() -> None:
    assert command_for_everything((1, 30)) == (
        "trainyard manifests --image IMAGE | kubectl apply --server-side -f -"
    )
    assert "--image IMAGE --kubernetes-version 1.27 |" in command_for_everything((1, 27))
