"""A kubectl of the machine, and an API server for it: what the kubectl tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.api.errors import TrainyardError
from trainyard.local.apiserver import certificates, kubeconfig
from trainyard.local.housekeeping import Housekeeping
from trainyard.local.registry import Registry
from trainyard.local.server import ApiServer

JOB = """
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata:
  name: digits
spec:
  replicaSpecs:
  - type: worker
    replicas: 2
    template:
      spec:
        containers:
        - name: pytorch
          image: python
          command: ["true"]
"""
JOBS = "pytorchtrainingjobs.batch.tensorstack.dev"


class WrittenLogs:
    """A node whose containers have all written the same lines; follows until told to stop."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def logs(
        self,
        pod: dict[str, Any],
        container: str,
        *,
        follow: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        since_time: datetime | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        text = "earlier life" if previous else "one\ntwo\nthree"
        lines = text.splitlines(keepends=True)
        if since_time is not None:
            lines = lines[-1:]
        shown = lines[-tail_lines:] if tail_lines is not None else lines
        for line in shown:
            yield (f"2026-01-01T00:00:00Z {line}" if timestamps else line).encode()
        if follow:
            yield b"\n"
            async with asyncio.timeout(20):
                await self.ended.wait()
            yield b"last\n"

    async def exec(self, *_: Any, **__: Any) -> Any:
        raise TrainyardError("no commands run here")

    async def connect(self, *_: Any) -> Any:
        raise TrainyardError("no ports are open here")


@dataclass
class Cluster:
    """An API server on a port, and a kubectl that speaks to it."""

    registry: Registry
    runtime: WrittenLogs
    kubectl: str
    environment: dict[str, str]
    folder: Path

    async def start(self, *arguments: str, stdin: bytes = b"") -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            self.kubectl,
            *arguments,
            env=self.environment,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.write_eof()
        return process

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What kubectl prints; stderr instead when it is to fail."""
        process = await self.start(*arguments, stdin=stdin.encode())
        async with asyncio.timeout(30):
            out, err = await process.communicate()
        assert (process.returncode != 0) is fails, f"{out.decode()}\n{err.decode()}"
        return (err if fails else out).decode()

    async def warnings(self, *arguments: str, stdin: str = "") -> str:
        process = await self.start(*arguments, stdin=stdin.encode())
        async with asyncio.timeout(30):
            _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return err.decode()

    async def set_status(self, name: str, **status: Any) -> None:
        await self.registry.update(
            JOBS, "default", name, lambda copy: {**copy, "status": status}, subresource="status"
        )


@asynccontextmanager
async def running_cluster(kubectl: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster without nodes, served over TLS."""
    registry = Registry()
    await registry.ensure_system_objects()
    housekeeping = asyncio.create_task(Housekeeping(registry).run())
    runtime = WrittenLogs()
    server = ApiServer(registry, runtime)
    made = certificates.ensure(tmp_path / "pki")
    token = kubeconfig.ensure_token(tmp_path / "token")
    port = await server.serve_tls(0, certificate=made.certificate, key=made.key, token=token)
    config = kubeconfig.kubeconfig(port=port, authority=made.authority, token=token)
    kubeconfig.write_kubeconfig(tmp_path / "kubeconfig", config)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    yield Cluster(registry, runtime, kubectl, environment, tmp_path)
    await server.close()
    await registry.close()
    async with asyncio.timeout(5):
        await housekeeping


async def running_pod(cluster: Cluster, name: str = "p", *containers: str) -> None:
    names = containers or ("main",)
    pod = {
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "nodeName": "here",
            "containers": [{"name": each, "image": "python"} for each in names],
        },
    }
    await cluster.registry.create("pods", pod)
    states = [
        {
            "name": each,
            "ready": True,
            "restartCount": 1,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1}},
        }
        for each in names
    ]
    status = {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": states}
    await cluster.registry.update(
        "pods", "default", name, lambda copy: {**copy, "status": status}, subresource="status"
    )


async def eventually(registry: Registry, condition: Callable[[], bool]) -> None:
    changes = registry.subscribe("configmaps")
    async with asyncio.timeout(10):
        while not condition():
            await anext(changes)
    registry.unsubscribe(changes)
