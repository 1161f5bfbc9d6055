"""An embedded cluster with its controller, for jobs that are launched over ssh."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools import require
from trainyard.composition.embedded_cluster import cluster_with_controller
from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.cluster import ClusterSettings
from trainyard.embedded.kubelet_api import KubeletApi
from trainyard.embedded.node.pod_runtime_process import Isolation, start_pod_runtime
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client, LogOptions
from trainyard.kube.errors import ApiError
from trainyard.kube.resources import EVENTS, PODS, Resource
from trainyard.machine.state_folder import Paths
from trainyard.payloads.processes import children_of, descendants

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMESPACE = "default"
PATIENCE_SECONDS = 180.0
POLL_SECONDS = 0.1
Object = dict[str, Any]


def require_programs(*names: str) -> None:
    """Skip, or fail in CI, without one of these."""
    for name in names:
        require(name)


def resource_of(kind: str) -> Resource:
    """The collection of a job kind."""
    found = KINDS[kind]
    return Resource(found.group, found.version, found.plural, kind)


class Jobs:
    """Submits jobs and tells what became of them."""

    def __init__(
        self, client: Client, folder: Path, runtime: KubeletApi, pod_runtime_pid: int
    ) -> None:
        self.client, self.folder = client, folder
        self.runtime, self.pod_runtime_pid = runtime, pod_runtime_pid

    def script(self, name: str, text: str) -> str:
        """A file in the folder that containers start in."""
        (self.folder / name).write_text(text)
        return name

    async def submit_example(self, name: str) -> None:
        """Copy an example into the folder that containers start in, and create its job."""
        example = EXAMPLES / name
        shutil.copytree(example, self.folder, dirs_exist_ok=True)
        job = yaml.safe_load((example / "job.yaml").read_text())
        await self.submit(job["kind"], job["metadata"]["name"], job["spec"])

    async def submit(self, kind: str, name: str, spec: Object) -> None:
        """Create a job."""
        api_version = f"{KINDS[kind].group}/{KINDS[kind].version}"
        metadata = {"name": name, "namespace": NAMESPACE}
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
        await self.client.create(resource_of(kind), body, NAMESPACE)

    async def job(self, kind: str, name: str) -> Object:
        """The stored job."""
        return await self.client.get(resource_of(kind), name, NAMESPACE)

    async def until(self, kind: str, name: str, holds: Callable[[Object], bool]) -> Object:
        """The job, once it is as wanted; with everything known about it if that takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if holds(job := await self.job(kind, name)):
                return job
            await asyncio.sleep(POLL_SECONDS)
        raise AssertionError(await self.story(kind, name))

    async def end(self, kind: str, name: str) -> Object:
        """The status of the job once it has ended."""
        ends = ("Succeeded", "Failed")
        job = await self.until(kind, name, lambda job: phase_of(job) in ends)
        return dict(job["status"])

    async def succeed(self, kind: str, name: str) -> Object:
        """The status of the job, which must end well."""
        status = await self.end(kind, name)
        assert status["phase"] == "Succeeded", await self.story(kind, name)
        return status

    async def fail(self, kind: str, name: str) -> Object:
        """The status of the job, which must end badly."""
        status = await self.end(kind, name)
        assert status["phase"] == "Failed", await self.story(kind, name)
        return status

    async def pods(self) -> dict[str, Object]:
        """All pods by name."""
        items, _ = await self.client.list(PODS, NAMESPACE)
        return {pod["metadata"]["name"]: pod for pod in items}

    async def until_pods(self, holds: Callable[[dict[str, Object]], bool]) -> None:
        """Wait until the pods, by name, are as wanted."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(pods := await self.pods()):
            assert time.monotonic() < deadline, sorted(pods)
            await asyncio.sleep(POLL_SECONDS)

    async def log(self, pod: str, *, timestamps: bool = False) -> str:
        """A pod's log so far."""
        lines = self.client.logs(pod, NAMESPACE, options=LogOptions(timestamps=timestamps))
        chunks = [chunk async for chunk in lines]
        return b"".join(chunks).decode(errors="replace")

    async def logs(self) -> str:
        """All pods' logs, one after the other."""
        return "".join([await self.log(pod) for pod in sorted(await self.pods())])

    async def shell(self, pod: Object, script: str) -> str:
        """What a shell script in the pod's first container prints, on either stream."""
        container = pod["spec"]["containers"][0]["name"]
        session = await self.runtime.exec(pod, container, ["/bin/sh", "-c", script])
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return b"".join([part.data async for part in session.output()]).decode()
        finally:
            await session.close()

    async def story(self, kind: str, name: str) -> str:
        """What a developer wants to see of a test that failed."""
        job = await self.job(kind, name)
        events, _ = await self.client.list(EVENTS, NAMESPACE)
        lines = [json.dumps(job.get("status"), indent=1)]
        lines += [f"{e.get('type')} {e.get('reason')}: {e.get('message')}" for e in events]
        for pod in sorted(await self.pods()):
            try:
                lines.append(f"--- {pod}\n{(await self.log(pod))[-60000:]}")
            except ApiError as error:
                lines.append(f"--- {pod}: {error}")
        return "\n".join(lines)


def sshd_processes(jobs: Jobs) -> list[int]:
    """Listening ssh servers in the pods of this cluster, which are descendants of its shim."""
    found = []
    for pid in descendants(jobs.pod_runtime_pid, children_of()):
        with suppress(OSError):
            if b"/ssh/sshd_config" in Path("/proc", str(pid), "cmdline").read_bytes():
                found.append(pid)
    return found


def phase_of(job: Object) -> str:
    """The job's phase; empty before the controller has seen it."""
    return str(job.get("status", {}).get("phase", ""))


def message_of(status: Object) -> str:
    """Why the job failed."""
    conditions = status.get("conditions", ())
    return next((str(c["message"]) for c in conditions if c["type"] == "Failed"), "")


@asynccontextmanager
async def running_jobs(
    folder: Path, isolation: Isolation = "auto", **settings: Any
) -> AsyncIterator[Jobs]:
    """A cluster whose containers start in ``folder``."""
    paths = Paths(folder / ".state")
    paths.prepare()
    pod_runtime = start_pod_runtime(paths.folder, isolation=isolation, die_with_parent=True)
    try:
        given = ClusterSettings(
            paths, EXTENSION, is_durable=False, working_dir=str(folder), **settings
        )
        async with (
            cluster_with_controller(given, pod_runtime) as cluster,
            Client.unix(cluster.socket) as client,
        ):
            yield Jobs(client, folder, cluster.agent, pod_runtime.pid)
    finally:
        pod_runtime.kill()


def jobs_with(*programs: str) -> Any:
    """A fixture: a cluster for launches that need these programs."""

    @pytest.fixture
    async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
        require_programs(*programs)
        async with running_jobs(tmp_path) as running:
            yield running

    return jobs
