"""The tests of clients of Kubernetes, of their packages and repositories, run against a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.foreign.programs import CLIENTS, INSTALLED, Client

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
TEST_SECONDS = 300
"""For one test of theirs; kr8s' own figure."""
SUITE_SECONDS = 3600
"""Far beyond the minute that one takes alone on a machine."""


class Sdist(NamedTuple):
    """A client's source distribution, of the version that is locked."""

    client: Client
    parts: Sequence[str]
    """Files and folders, below its root."""

    def __str__(self) -> str:
        return "its source distribution"

    def extract(self, folder: Path) -> None:
        """Put the parts into a folder; a skip where it cannot be had."""
        package, version = self.client.package, self.client.version()
        kept = INSTALLED / "sdists"
        file = kept / f"{package}-{version}.tar.gz"
        if not file.exists():
            (folder / "wanted").write_text(self.client.lock())
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                    *("--no-binary", package, "--require-hashes", "--dest", kept),
                    *("--requirement", folder / "wanted"),
                ],
                capture_output=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"{file.name} is not to be had: {done.stderr.decode()[-500:]}")
        subprocess.run(
            [
                *("tar", "--extract", "--file", file, "--directory", folder),
                *("--strip-components=1", "--wildcards", "--no-wildcards-match-slash"),
                *(f"*/{part}" for part in self.parts),
            ],
            check=True,
        )


class Repository(NamedTuple):
    """What a client keeps its tests in, where nothing that it publishes has them."""

    name: str
    """As on GitHub; of a clone below TRAINYARD_SUITES, the last part."""
    commit: str
    parts: Sequence[str]
    """Files and folders, below `root`."""
    root: str = ""

    def __str__(self) -> str:
        return f"{self.name} at {self.commit[:7]}"

    def extract(self, folder: Path) -> None:
        """Put the parts into a folder; a skip where there is no clone."""
        clones = os.environ.get("TRAINYARD_SUITES")
        if not clones:
            pytest.skip(f"TRAINYARD_SUITES does not say where a clone of {self.name} is")
        clone = Path(clones) / self.name.rpartition("/")[2]
        done = subprocess.run(
            ["git", "-C", clone, "archive", f"{self.commit}:{self.root}", *self.parts],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{clone} is no clone that has {self.commit}: {done.stderr.decode()}")
        subprocess.run(["tar", "--extract", "--directory", folder], input=done.stdout, check=True)


class Suite(NamedTuple):
    """A client's tests: their list in `expected`, where they are, and what they rely on."""

    name: str
    client: Client
    tests: Sequence[str]
    """Folders or files, of where packages are installed or of the repository."""
    options: Sequence[str] = ()
    changes: Mapping[str, Sequence[tuple[str, str]]] = {}
    """What is written otherwise in a copy, by pattern of files. Images are not run here, so a
    container needs a command for what its image would do."""
    source: Sdist | Repository | None = None
    """Where they are, if not in the package that is installed."""

    def expected(self) -> dict[str, Any]:
        """Its list: how many tests there are, and the cases that do not pass, with the reasons."""
        return {"case": [], **tomllib.loads((EXPECTED / f"{self.name}.toml").read_text())}

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
_HELLO = """\
"command": ["sh", "-c", "cd $(mktemp -d); echo '<h1>Welcome to nginx!</h1>' >index.html; \\
    exec python3 -m http.server 80"]"""
_AS_COMMAND = ('"args": [', '"command": [')
_THERE = "kubectl get genericjobs"
_KOPFS_KIND = [
    ("'kopfexamples'", "'genericjobs'"),
    ("'kex'", "'genericjobs'"),
    (
        "spec.get('items', [])",
        "spec['replicaSpecs'][0]['template']['spec']['containers'][0]['args']",
    ),
    ("spec.field'", "spec.runMode.pause.enabled'"),
    ("spec['field']", "spec['managedBy']"),
    ("spec.get('field'", "spec.get('managedBy'"),
    ("value='value'", "value=False"),
    ("old='value', new='changed'", "old=False, new=True"),
]
_KOPFS_PATCH = (
    '{"spec":{"field":"changed"}}',
    '{"spec":{"runMode":{"pause":{"enabled":true}}}}',
)
_KOPFS_OBJECT = [
    (
        "apiVersion: kopf.dev/v1\nkind: KopfExample",
        "apiVersion: batch.tensorstack.dev/v1beta1\nkind: GenericJob",
    ),
    (
        "  duration: 1m\n  field: value\n  items:\n  - item1\n  - item2\n",
        """\
  runMode: {pause: {enabled: false}}
  managedBy: example.com/kopf
  replicaSpecs:
  - type: worker
    replicas: 1
    template: {spec: {containers: [{name: worker, image: worker, args: [item1, item2]}]}}
""",
    ),
]
"""It makes no difference to kopf, whose examples need an object with a spec, what kind it is."""
_NODE_TESTS = "integration"
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
    Suite(
        "kubernetes-e2e",
        _BY_NAME["kubernetes"],
        ["kubernetes/e2e_test", "kubernetes/aio/e2e_test"],
        changes={
            "kubernetes/**/e2e_test/test_*client.py": [_AS_COMMAND],
            "kubernetes/e2e_test/test_client.py": [
                (
                    "'image': 'nginx',\n                }]",
                    f"'image': 'nginx', {_HELLO}\n                }}]",
                )
            ],
        },
        source=Repository(
            "kubernetes-client/python",
            "024658493d124f046fc0a9827a2a3165cf2aee28",
            ["kubernetes/e2e_test", "kubernetes/aio/e2e_test"],
        ),
    ),
    Suite(
        "kubernetes_asyncio-e2e",
        _BY_NAME["kubernetes_asyncio"],
        ["kubernetes_asyncio/e2e_test"],
        changes={
            "kubernetes_asyncio/e2e_test/test_dynamic_client.py": [_AS_COMMAND],
            "kubernetes_asyncio/e2e_test/test_client.py": [("args=[", "command=[")],
        },
        source=Repository(
            "tomplus/kubernetes_asyncio",
            "cb0b819d0666538dc02f39a858e251834f980d4e",
            ["kubernetes_asyncio/e2e_test"],
        ),
    ),
    Suite(
        "lightkube",
        _BY_NAME["lightkube"],
        ["e2e-tests"],
        ["--override-ini=asyncio_mode=strict", "--override-ini=usefixtures=k8s_cluster"],
        {
            "e2e-tests/test_client.py": [
                ('args=["/bin/sh", "-c", command]', 'command=["/bin/sh", "-c", command]'),
                ('"image": "nginx:1.21.4"', f'"image": "nginx:1.21.4", {_SLEEP}'),
            ]
        },
        Repository("gtsystem/lightkube", "2f41260dc98af0cd3f62a526539a72cd8289af73", ["e2e-tests"]),
    ),
    Suite(
        "kopf",
        _BY_NAME["kopf"],
        ["tests/e2e", "examples"],
        ["--override-ini=asyncio_mode=auto", "-W", "ignore::ResourceWarning"],
        {
            "tests/conftest.py": [
                ('"--with-e2e", action="store_true"', '"--with-e2e", default="y"'),
                ("import freezegun\n", ""),  # which tests without a cluster use
                ("freezegun.configure(", "dict("),
            ],
            "tests/e2e/conftest.py": [("kubectl apply -f examples/crd.yaml", _THERE)],
            "examples/*/test_*.py": [("kubectl apply -f {crd_yaml}", _THERE), _KOPFS_PATCH],
            "examples/*/example.py": _KOPFS_KIND,
            "examples/obj.yaml": _KOPFS_OBJECT,
        },
        Sdist(_BY_NAME["kopf"], ["tests/conftest.py", "tests/e2e", "examples"]),
    ),
    Suite(
        "client-node",
        _BY_NAME["@kubernetes/client-node"],
        [
            f"{_NODE_TESTS}/{name}.ts"
            for name in (
                *("patchNamespace", "cpFromPod", "portForward", "watchPods"),
                "informerReconnect",
            )
        ],
        changes={
            f"{_NODE_TESTS}/*.ts": [
                (f"'../../{module}.js'", "'@kubernetes/client-node'")
                for module in ("index", "cp", "cache", "portforward", "watch")
            ]
        },
        source=Repository(
            "kubernetes-client/javascript",
            "f72cc23ed378cb8e7f09129ee6e55aa531a2b9ba",
            [_NODE_TESTS],
            "src/test",
        ),
    ),
]


def prepare(suite: Suite, site: Path, folder: Path) -> Path:
    """Where the suite is: as its package is installed, or in `folder`, with what is changed."""
    if not suite.changes and suite.source is None:
        return site
    package = suite.client.package
    if suite.tests[0].startswith(f"{package}/"):
        shutil.copytree(site / package, folder / package)
    if suite.source is not None:
        suite.source.extract(folder)
    for pattern, changes in suite.changes.items():
        for theirs, ours in changes:
            found = [file for file in folder.glob(pattern) if theirs in file.read_text()]
            assert found, f"{pattern} has no {theirs!r} anymore"
            for file in found:
                file.write_text(file.read_text().replace(theirs, ours))
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
    told = folder / "told"
    told.touch()
    start = _node if suite.client.folder == "node" else _pytest
    command, variables = start(suite, folder, only)
    with (folder / "log").open("wb") as log:
        subprocess.run(
            command,
            env={**environment, **variables, "RESULTS": str(told)},
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


def _pytest(suite: Suite, folder: Path, only: Sequence[str]) -> tuple[list[Any], dict[str, str]]:
    client = INSTALLED / suite.client.folder
    (site,) = client.glob("lib/python3*/site-packages")
    root = prepare(suite, site, folder)
    configuration, plugin = folder / "pytest.ini", folder / "plugin"
    configuration.write_text("[pytest]\npython_files = test_*.py *_test.py\n")
    plugin.mkdir()
    shutil.copy(HERE / "suite_plugin.py", plugin)
    command = [
        *(client / "bin/python", "-m", "pytest"),
        *(root / each for each in only or suite.tests),
        *("-c", configuration, f"--rootdir={root}"),
        *("-p", "suite_plugin", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"),
        *suite.options,
        *(f"--deselect={name}" for name in suite.left_out()),
    ]
    return command, {"PYTHONPATH": f"{plugin}:{root}"}


def _node(suite: Suite, folder: Path, only: Sequence[str]) -> tuple[list[Any], dict[str, str]]:
    modules = INSTALLED / suite.client.folder / "node_modules"
    root = prepare(suite, modules, folder)
    (root / "node_modules").symlink_to(modules)
    (root / "package.json").write_text('{"type": "module"}')
    shutil.copy(HERE / "suite_runner.mjs", root)
    names = [name for name in only or suite.tests if name not in suite.left_out()]
    seconds = str(TEST_SECONDS)
    return ["node", "--import", "tsx", "suite_runner.mjs", seconds, *names], {}
