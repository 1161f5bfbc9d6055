"""macOS and Windows against a cluster, as far as Linux can tell (`tests/other_system.py`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine
from tests.tools import soak

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("platform", ["win32", "darwin"][: soak(1, 2)])
def test_jobs_of_a_cluster_are_run_and_looked_after(trainyard: CommandLine, platform: str) -> None:
    (trainyard.folder / "train.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    trainyard.run("up")
    try:
        where = ("--kubeconfig", trainyard.run("kubeconfig").strip())

        def there(command: str, *arguments: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "tests.other_system", platform, command, *where, *arguments],
                cwd=trainyard.folder,
                env={**trainyard.environment, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
            assert done.returncode == 0, done.stdout
            return done.stdout

        output = there("run", "--image", "any", "--replicas", "2", "--name", "far", "train.py")
        assert "PyTorchTrainingJob far: Succeeded" in output
        assert "[worker-1] rank 1\n" in there("logs", "far")
        assert "far" in there("list")
        assert "far deleted" in there("delete", "far")
    finally:
        trainyard.run("down")
