"""A cluster that was composed without any kinds serves Kubernetes' core and runs plain pods."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.embedded.cluster import ClusterSettings, run_cluster
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.kube.client import Client
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from trainyard.machine.state_folder import Paths

_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "hello"},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "busybox", "command": ["echo", "said by a plain pod"]}
        ],
    },
}
_QUEUES = Resource("scheduler.tensorstack.dev", "v1beta1", "queues", "Queue", namespaced=False)
_KNOW_JOBS = (
    *("api", "cli", "client", "composition", "diagnosis", "evidence"),
    *("conversion", "kinds", "lifecycle", "manifest", "operator"),
)


async def test_a_cluster_without_kinds_runs_a_pod_and_serves_its_log(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "state")
    paths.prepare()
    pod_runtime = start_pod_runtime(paths.folder, die_with_parent=True)
    try:
        settings = ClusterSettings(paths, is_durable=False, working_dir=str(tmp_path))
        async with (
            run_cluster(settings, pod_runtime) as cluster,
            Client.unix(cluster.socket) as client,
        ):
            assert [each["metadata"]["name"] for each in (await client.list(NAMESPACES))[0]]
            assert (await client.list(CUSTOM_RESOURCE_DEFINITIONS))[0] == []
            with pytest.raises(NotFound):
                await client.list(_QUEUES)
            await client.create(PODS, _POD, "default")
            pod = await _ended(client, "hello")
            assert pod["status"]["phase"] == "Succeeded", pod["status"]
            log = b"".join([chunk async for chunk in client.logs("hello", "default")])
            assert log == b"said by a plain pod\n"
    finally:
        pod_runtime.kill()


async def _ended(client: Client, name: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while True:
            pod = await client.get(PODS, name, "default")
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                return pod
            await asyncio.sleep(0.05)


def test_composing_a_cluster_imports_no_package_that_knows_jobs() -> None:
    code = f"""
import sys, trainyard.embedded.cluster, trainyard.embedded.storage.store
from trainyard.embedded.resources.resource_table import Resources
list(Resources())
print(*(room for room in {_KNOW_JOBS!r} if f"trainyard.{{room}}" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
