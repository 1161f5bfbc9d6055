"""A feature is its folders and its rows: without them, everything else is whole and works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.embedded.command_line import CommandLine
from tests.feature_removal import Place, mentions, remove_files, remove_rows

_ROOT = Path(__file__).parents[2]
_COPIED = ("src", "tests", "tools", "deploy", "docs")


class Feature(NamedTuple):
    """What there is of a feature besides its own folders and modules."""

    name: str
    files: frozenset[str]
    """Those that have rows of it, all of them."""
    places: tuple[Place, ...] = ()
    mentioned_by: frozenset[str] = frozenset()
    """Files that name it, and work without it."""


_SHOWN_TEXTS = "composition/kinds_extension.py"
"""Lists paths of a status; one that no object has does nothing."""
_FEATURES = (
    Feature(
        "node_check",
        frozenset(
            {
                "cli/commands/show.py",
                "client/job_view.py",
                "diagnosis/__init__.py",
                "kinds/models.py",
                "kinds/pytorch/rules.py",
                "kinds/pytorch/spec.py",
                "kinds/pytorch/workload.py",
                "kinds/shared/status.py",
                "kinds/shared/workload.py",
                "lifecycle/observed.py",
                "lifecycle/pod_reports.py",
                "lifecycle/policies.py",
            }
        ),
        places=(
            Place("client/job_view.py", "Job", "node_check"),
            Place("kinds/shared/workload.py", "Workload", "node_check"),
        ),
        mentioned_by=frozenset({_SHOWN_TEXTS}),
    ),
    Feature(
        "goodput",
        frozenset(
            {
                "api/chaos/chaos_trial.py",
                "cli/commands/show.py",
                "kinds/shared/status.py",
                "lifecycle/policies.py",
                "operator/metrics/operator_metrics.py",
            }
        ),
        mentioned_by=frozenset({"api/chaos/chaos_report.py", _SHOWN_TEXTS}),
    ),
    Feature(
        "chaos",
        frozenset({"cli/main.py"}),
        places=(Place("cli/main.py", "_COMMANDS", "chaos"),),
    ),
)
_IMPORT_ALL = """\
import importlib, pkgutil, trainyard
for found in pkgutil.walk_packages(trainyard.__path__, "trainyard."):
    importlib.import_module(found.name)
"""
_WORLD = """\
from tests.unit.lifecycle.world import World, generic, pytorch
import trainyard
for job in (generic(workers=2), pytorch(workers=2)):
    world = World(job).settle()
    world.advance(5).run().settle().advance(100).exit("0", 0).exit("1", 0)
    assert world.settle().status["phase"] == "Succeeded", world.status
print(trainyard.__file__)
"""


@pytest.fixture(params=_FEATURES, ids=lambda feature: feature.name)
def feature(request: pytest.FixtureRequest) -> Feature:
    found: Feature = request.param
    return found


@pytest.fixture
def copy(tmp_path: Path, feature: Feature) -> Path:
    """The tree without the feature, and with what is generated written anew."""
    folder = tmp_path / "copy"
    for name in _COPIED:
        shutil.copytree(
            _ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    shutil.copy(_ROOT / "pyproject.toml", folder)
    package = folder / "src" / "trainyard"
    touched = remove_rows(package, remove_files(package, feature.name), feature.places)
    assert touched == feature.files, "rows of the feature are elsewhere than this test says"
    assert mentions(package, feature.name.replace("_", "")) == feature.mentioned_by
    return folder


def _python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def trainyard(tmp_path: Path, copy: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    line.environment["PYTHONPATH"] = str(copy / "src")
    yield line
    line.kill_everything()


_JOB = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: small}
spec:
  replicaSpecs:
    - type: worker
      replicas: 2
      template:
        spec:
          containers:
            - {name: pytorch, image: local, command: [sh, -c, 'echo rank $RANK of $WORLD_SIZE']}
"""


def test_without_the_feature_the_rest_passes_its_gates_and_runs_jobs(
    copy: Path, trainyard: CommandLine
) -> None:
    _python(copy, "-m", "ruff", "check", "-q", "--fix", "--select", "F401", "src")
    _python(copy, "-m", "ruff", "check", "-q", "--select", "F", "src")
    _python(copy, "-m", "tools.crds")
    _python(copy, "-m", "mypy", "--cache-dir", str(copy.parents[1] / "mypy"), "-p", "trainyard")
    _python(
        copy, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"
    )
    _python(copy, "-c", _IMPORT_ALL)
    assert str(copy) in _python(copy, "-c", _WORLD)
    (trainyard.folder / "job.yaml").write_text(_JOB)
    output = trainyard.run("run", "-f", str(trainyard.folder / "job.yaml"))
    assert "PyTorchTrainingJob small: Succeeded" in output
    assert "[worker-1] rank 1 of 2" in output
