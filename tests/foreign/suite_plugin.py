"""What the clients' suites import or are given, and do not bring: a plugin of their pytest.

It is loaded by the Python of the clients, which has nothing of trainyard.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_KEPT_POD = """
apiVersion: v1
kind: Pod
metadata: {name: metrics-server, namespace: kube-system, labels: {tier: control-plane}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: main, command: [sleep, infinity]}]
"""


def _stand_in_for_e2e_test(client: str) -> None:
    """`e2e_test.base` of a client, where it is only in its repository: where the cluster is."""

    def get_e2e_configuration() -> Any:
        configuration = importlib.import_module(f"{client}.client").Configuration()
        load = importlib.import_module(f"{client}.config").load_kube_config
        loading = load(client_configuration=configuration)
        if loading is not None:
            asyncio.run(loading)
        return configuration

    package, base = ModuleType(f"{client}.e2e_test"), ModuleType(f"{client}.e2e_test.base")
    vars(base)["get_e2e_configuration"] = get_e2e_configuration
    vars(package)["base"] = base
    sys.modules[package.__name__], sys.modules[base.__name__] = package, base


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor the package that it would be in
        return False


for _client in ("kubernetes", "kubernetes.aio", "kubernetes_asyncio"):
    if not _is_there(f"{_client}.e2e_test"):
        _stand_in_for_e2e_test(_client)


class Cluster:
    """The cluster of KUBECONFIG, as `pytest_kind` tells of one that it has made in Docker."""

    def __init__(self) -> None:
        self.kubeconfig_path = Path(os.environ["KUBECONFIG"])
        self.kubectl_path = Path(str(shutil.which("kubectl")))

    def kubectl(self, *arguments: str, **options: Any) -> str:
        """What a command of kubectl prints."""
        return str(subprocess.check_output(["kubectl", *arguments], text=True, **options))


def pytest_addoption(parser: pytest.Parser) -> None:
    """What else `pytest_kind` brings."""
    parser.addoption("--keep-cluster", action="store_true")


@pytest.fixture
def ensure_gc() -> None:
    """As in the conftest of kr8s' repository."""
    gc.collect()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell each phase of a test: its name, and what went wrong."""
    wrong = f"{report.when}: {report.longreprtext}" if report.failed else ""
    with Path(os.environ["RESULTS"]).open("a") as file:
        print(json.dumps([report.nodeid, wrong]), file=file)


@pytest.fixture(scope="session")
def k8s_cluster() -> Cluster:
    """Where a pod of its own runs in kube-system, as in every cluster of kind or k3s."""
    cluster = Cluster()
    cluster.kubectl("apply", "--filename=-", input=_KEPT_POD)
    cluster.kubectl(
        "wait",
        "--namespace=kube-system",
        "--for=condition=Ready",
        "--timeout=10m",
        "pod/metrics-server",
    )
    return cluster
