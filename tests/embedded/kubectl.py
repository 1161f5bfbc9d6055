"""A kubectl of the machine, and an API server for it: what the kubectl tests share."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded import tls_files
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.apiserver.auth import certificates
from trainyard.embedded.controllers.housekeeping import Housekeeping
from trainyard.embedded.kubelet_api import OutputChunk, ResourceUsage, UsageSample
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.resource_table import Resources
from trainyard.podruntime.log_reader import LogOptions
from trainyard.schema.errors import TrainyardError

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


class HostRuntime:
    """A node whose containers have all written the same lines, and share this machine."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.commands: list[asyncio.subprocess.Process] = []
        self.running: list[str] = []
        """UIDs of the pods that use anything."""

    async def logs(
        self, pod: dict[str, Any], container: str, options: LogOptions, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        text = "earlier life" if previous else "one\ntwo\nthree"
        lines = text.splitlines(keepends=True)
        if options.since is not None:
            lines = lines[-1:]
        shown = lines[len(lines) - options.tail :] if options.tail is not None else lines
        for line in shown:
            yield (f"2026-01-01T00:00:00Z {line}" if options.timestamps else line).encode()
        if options.follow:
            yield b"\n"
            async with asyncio.timeout(120):
                await self.ended.wait()
            yield b"last\n"

    async def exec(
        self,
        pod: dict[str, Any],
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> HostCommand:
        if command[0] == "no-such-command":
            raise TrainyardError("no-such-command: not found in the container")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe if stdin else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
        self.commands.append(process)
        return HostCommand(process)

    async def attach(
        self, pod: dict[str, Any], container: str, *, stdin: bool = False
    ) -> HostCommand:
        """It goes on as a shell does."""
        return await self.exec(pod, container, ["sh"], stdin=stdin)

    async def connect(self, pod: dict[str, Any], port: int) -> HostConnection:
        try:
            return HostConnection(*await asyncio.open_connection("127.0.0.1", port))
        except OSError as error:
            raise TrainyardError(f"nothing listens on port {port}") from error

    async def measure(self) -> UsageSample:
        """Every pod that runs has a `main` at work on a core and a half, and two of four GPUs."""
        used = ResourceUsage(1.5, 200 << 20, 1.5, 3 << 30)
        containers = {
            uid: {"main": used, "side": ResourceUsage(0.25, 8 << 20)} for uid in self.running
        }
        return UsageSample(
            1_790_000_000.0, 2.0, ResourceUsage(2.5, 4 << 30, 1.5, 3 << 30), containers
        )


class HostCommand:
    """A process of this machine in the place of one in a container."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def output(self) -> AsyncIterator[OutputChunk]:
        arrived: asyncio.Queue[OutputChunk | None] = asyncio.Queue()

        async def read(number: int, stream: asyncio.StreamReader) -> None:
            while data := await stream.read(1 << 16):
                arrived.put_nowait(OutputChunk(number, data))
            arrived.put_nowait(None)

        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read(1, self._process.stdout))
            tasks.create_task(read(2, self._process.stderr))
            ended = 0
            while ended < 2:
                item = await arrived.get()
                if item is None:
                    ended += 1
                else:
                    yield item

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        with contextlib.suppress(ConnectionError):  # it has ended, as one may write to a pipe
            await self._process.stdin.drain()

    async def close_stdin(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def resize(self, columns: int, rows: int) -> None:
        pass

    async def wait(self) -> int:
        return await self._process.wait()

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class HostConnection:
    """A connection to a port of this machine in the place of one in a pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, limit: int) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def write_eof(self) -> None:
        self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@dataclass
class Cluster:
    """An API server on a port, and a kubectl that speaks to it."""

    registry: Registry
    runtime: HostRuntime
    kubectl: str
    environment: dict[str, str]
    folder: Path
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

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
        self.started.append(process)
        return process

    async def close(self) -> None:
        """End what a failed test has left running."""
        for process in self.started:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What kubectl prints; stderr instead when it is to fail."""
        process = await self.start(*arguments, stdin=stdin.encode())
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert (process.returncode != 0) is fails, f"{out.decode()}\n{err.decode()}"
        return (err if fails else out).decode()

    async def warnings(self, *arguments: str, stdin: str = "") -> str:
        process = await self.start(*arguments, stdin=stdin.encode())
        async with asyncio.timeout(120):
            _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return err.decode()

    async def set_status(self, name: str, **status: Any) -> None:
        await self.registry.update(
            JOBS, "default", name, lambda copy: {**copy, "status": status}, subresource="status"
        )


@asynccontextmanager
async def running_cluster(
    kubectl: str, tmp_path: Path, resources: Resources = RESOURCES
) -> AsyncIterator[Cluster]:
    """A cluster without nodes, served over TLS."""
    registry = Registry(resources=resources)
    await registry.ensure_system_objects()
    housekeeping = asyncio.create_task(Housekeeping(registry).run())
    runtime = HostRuntime()
    server = ApiServer(registry, runtime)
    made = certificates.ensure(tmp_path / "pki")
    token = tls_files.ensure_token(tmp_path / "token")
    port = await server.serve_tls(0, certificate=made.certificate, key=made.key, token=token)
    config = tls_files.make_kubeconfig(port=port, authority=made.authority, token=token)
    tls_files.write_kubeconfig(tmp_path / "kubeconfig", config)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    cluster = Cluster(registry, runtime, kubectl, environment, tmp_path)
    yield cluster
    await cluster.close()
    await server.close()
    await registry.close()
    async with asyncio.timeout(120):
        await housekeeping


async def running_pod(cluster: Cluster, name: str = "p", *containers: str) -> None:
    """A pod that a node runs, with one container unless named."""
    await add_running_pod(cluster.registry, name, *(containers or ("main",)))


async def add_running_pod(registry: Registry, name: str, *names: str) -> None:
    """A pod that a node runs, with these containers."""
    pod = {
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "nodeName": "here",
            "containers": [{"name": each, "image": "python"} for each in names],
        },
    }
    await registry.create("pods", pod)
    states = [
        {
            "name": each,
            "image": "python",
            "imageID": "",
            "ready": True,
            "restartCount": 1,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1}},
        }
        for each in names
    ]
    status = {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": states}
    await registry.update(
        "pods", "default", name, lambda copy: {**copy, "status": status}, subresource="status"
    )


async def eventually(registry: Registry, condition: Callable[[], bool]) -> None:
    changes = registry.subscribe("configmaps")
    async with asyncio.timeout(120):
        while not condition():
            await anext(changes)
    registry.unsubscribe(changes)
