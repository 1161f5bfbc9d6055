"""One real control plane for all tests of a session, and a namespace for each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tools.control_plane import HOW, find

from tests.cluster.current_plane import CurrentControlPlane
from tests.cluster.plane import START_SECONDS, RunningControlPlane
from tests.cluster.yard import PYTORCH, Yard, until
from tests.tools import kubectl_path, oldest_and_newest_kubectl
from tools import current_apiserver
from trainyard.kube.client import Client
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import NAMESPACES, PODS, Resource

_serial = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """A control plane, or a skip: the binaries are in no package that CI could install."""
    programs = find()
    if programs is None:
        if os.environ.get("TRAINYARD_CLUSTER_TESTS") == "required":
            pytest.fail(f"no control plane found: {HOW}")
        pytest.skip(f"not judged: no control plane found: {HOW}")
    sort = RunningControlPlane
    if os.environ.get("TRAINYARD_CURRENT_APISERVER"):
        if not current_apiserver.PROGRAM.exists():
            pytest.fail("no current API server: python -m tools.current_apiserver build")
        sort = CurrentControlPlane
    running = sort(programs, tmp_path_factory.mktemp("control-plane"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def definitions(plane: RunningControlPlane) -> None:
    """Our kinds are served."""
    version = ".".join(map(str, plane.version))
    text = subprocess.run(
        [sys.executable, "-m", "trainyard.cli.main", "crds", "--kubernetes-version", version],
        capture_output=True,
        check=True,
        timeout=120,
    ).stdout
    kubectl = [kubectl_path(oldest_and_newest_kubectl()[-1]), "--kubeconfig", str(plane.kubeconfig)]
    for command in (
        ("apply", "--server-side", "-f", "-"),
        ("wait", "--for=condition=Established", f"--timeout={START_SECONDS:g}s", "-f", "-"),
    ):
        done = subprocess.run(
            [*kubectl, *command], input=text, capture_output=True, timeout=START_SECONDS
        )
        assert done.returncode == 0, done.stderr.decode()
    # kubectl explains and validates by what is published, which comes later.
    deadline = time.monotonic() + START_SECONDS
    while plane.is_one and PYTORCH.kind.encode() not in plane.get("/openapi/v2")[1]:
        assert time.monotonic() < deadline, "our kinds are not in OpenAPI"
        time.sleep(0.2)


@pytest.fixture
async def yard(
    plane: RunningControlPlane, definitions: None, tmp_path: Path
) -> AsyncIterator[Yard]:
    """A namespace on a cluster that serves our kinds."""
    name = f"test-{next(_serial)}"
    async with await Client.from_kubeconfig(plane.kubeconfig) as client:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        if plane.collects:
            accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")

            async def account() -> bool:
                try:
                    found = await client.get(accounts, "default", name)
                except NotFound:
                    return False
                # Older servers create no pod before there is a token for it.
                return plane.core_version >= (1, 24) or bool(found.get("secrets"))

            await until(account, bool)
        yield Yard(plane, name, client, tmp_path)
        with suppress(NotFound):
            await client.delete(NAMESPACES, name)
        pods, _ = await client.list(PODS, name)
        for pod in pods:  # no kubelet is left to end them, and the namespace would stay for ever
            with suppress(NotFound):
                await client.delete(PODS, pod["metadata"]["name"], name, grace_seconds=0)
