"""The tests that clients of Kubernetes bring in their packages, run against a cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.foreign.programs import CLIENTS, INSTALLED, Client

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
TEST_SECONDS = 300
"""For one test of theirs; kr8s' own figure."""
SUITE_SECONDS = 3600
"""Far beyond the minute that one takes alone on a machine."""


class Suite(NamedTuple):
    """A client's tests: their list in `expected`, where they are, and what they rely on."""

    name: str
    client: Client
    tests: Sequence[str]
    """Folders, of where packages are installed."""
    options: Sequence[str] = ()
    changes: Mapping[str, Sequence[tuple[str, str]]] = {}
    """What is written otherwise in a copy of its package, by file. Images are not run here, so a
    container needs a command for what its image would do."""

    def expected(self) -> dict[str, Any]:
        """Its list: how many tests there are, and the cases that do not pass, with the reasons."""
        return tomllib.loads((EXPECTED / f"{self.name}.toml").read_text())

    def left_out(self) -> list[str]:
        """What is not run, since it now passes and now does not."""
        return [case["name"] for case in self.expected()["case"] if not case.get("run", True)]


_BY_NAME = {client.name: client for client in CLIENTS}
_PAUSE = '"gcr.io/google_containers/pause"'
_SLEEP = '"command": ["sleep", "3600"]'
_NGINX = '        "nginx-" + example_pod_spec["metadata"]["name"]\n    )\n'
_SERVE = """\
    example_pod_spec["spec"]["containers"][0]["command"] = [
        "python3", "-m", "http.server", "--directory=/usr/share/nginx/html", "80"]
    example_pod_spec["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "html", "mountPath": "/usr/share/nginx/html"}]
    example_pod_spec["spec"]["volumes"] = [{"name": "html", "emptyDir": {}}]
"""
SUITES = [
    Suite("kubernetes", _BY_NAME["kubernetes"], ["kubernetes/dynamic", "kubernetes/aio/dynamic"]),
    Suite("kubernetes-older", _BY_NAME["kubernetes-older"], ["kubernetes/dynamic"]),
    Suite("kubernetes_asyncio", _BY_NAME["kubernetes_asyncio"], ["kubernetes_asyncio/dynamic"]),
    Suite(
        "kr8s",
        _BY_NAME["kr8s"],
        ["kr8s/tests"],
        ["--override-ini=asyncio_mode=auto"],
        {
            "kr8s/conftest.py": [(f'"image": {_PAUSE}}}]', f'"image": {_PAUSE}, {_SLEEP}}}]')],
            "kr8s/tests/test_api.py": [(f'"image": {_PAUSE},', f'"image": {_PAUSE}, {_SLEEP},')],
            "kr8s/tests/test_objects.py": [
                (_NGINX, _NGINX + _SERVE),
                (
                    'namespace=ns, image="nginx:latest")',
                    'namespace=ns, image="nginx:latest", command=["sleep", "3600"])',
                ),
            ],
        },
    ),
]


def prepare(suite: Suite, site: Path, folder: Path) -> Path:
    """Where the suite's package is: as it is installed, or changed, in `folder`."""
    if not suite.changes:
        return site
    package = suite.client.package
    shutil.copytree(site / package, folder / package)
    for name, changes in suite.changes.items():
        file = folder / name
        text = file.read_text()
        for theirs, ours in changes:
            assert theirs in text, f"{file.name} has no {theirs!r} anymore"
            text = text.replace(theirs, ours)
        file.write_text(text)
    return folder


def results(told: Path) -> dict[str, str]:
    """By test, what the plugin told of what went wrong; "" is well, or skipped."""
    found: dict[str, str] = {}
    for name, wrong in map(json.loads, told.read_text().splitlines()):
        found[name] = found.get(name, "") + wrong
    return found


def run(
    suite: Suite, folder: Path, environment: Mapping[str, str], only: Sequence[str] = ()
) -> dict[str, str]:
    """What `results` tells of the tests of a suite, or `only` of some: not of what is left out."""
    client = INSTALLED / suite.client.folder
    (site,) = client.glob("lib/python3*/site-packages")
    root = prepare(suite, site, folder)
    configuration, told, plugin = folder / "pytest.ini", folder / "told", folder / "plugin"
    configuration.write_text("[pytest]\npython_files = test_*.py *_test.py\n")
    told.touch()
    plugin.mkdir()
    shutil.copy(HERE / "suite_plugin.py", plugin)
    with (folder / "log").open("wb") as log:
        subprocess.run(
            [
                *(client / "bin/python", "-m", "pytest"),
                *(root / each for each in only or suite.tests),
                *("-c", configuration, f"--rootdir={root}"),
                *("-p", "suite_plugin", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"),
                *suite.options,
                *(f"--deselect={name}" for name in suite.left_out()),
            ],
            env={**environment, "PYTHONPATH": f"{plugin}:{root}", "RESULTS": str(told)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
            check=False,
        )
    found = results(told)
    assert found, (folder / "log").read_text(errors="replace")[-5000:]
    return found
