"""The main job on four replicas: as this user, without privileges, and without namespaces."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded import as_user
from tests.embedded.command_line import CommandLine
from tests.tools import missing

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ddp-torchrun"
_WAYS = {
    "as this user": (),
    "unprivileged": (sys.executable, "-m", "tests.embedded.as_user"),
    "namespaces forbidden": (
        sys.executable,
        "-m",
        "tests.embedded.as_user",
        "--forbid-namespaces",
    ),
}


@pytest.fixture(params=_WAYS.values(), ids=_WAYS)
def trainyard(request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    if request.param and os.geteuid():
        missing("becoming another user needs root")
    # Not pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="trainyard-demo-") as name:
        folder = Path(name)
        shutil.copytree(EXAMPLE, folder / "example")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, as_user.USER if request.param else os.geteuid(), -1)
        line = CommandLine(folder, wrapper=request.param, start_in=ROOT)
        yield line
        line.kill_everything()


def test_four_replicas_train_to_95_percent(trainyard: CommandLine) -> None:
    manifest = trainyard.folder / "example" / "job.yaml"
    volume = f"digits={trainyard.folder / 'digits'}"
    output = trainyard.run("run", "-f", str(manifest), "--volume", volume)
    assert "PyTorchTrainingJob digits: Succeeded" in output
    # Where all replicas have one host name, torchrun orders them by process number.
    told = re.findall(r"\[worker-\d\] test accuracy (\S+)", output)
    # More than once where torch itself died in a rank's tear-down, and all were started anew.
    assert told, output
    assert all(float(accuracy) >= 0.95 for accuracy in told), output
    hosts = set(re.findall(r"rank \d of 4 on (\S+)", output))
    assert len(hosts) == (1 if trainyard.wrapper == _WAYS["namespaces forbidden"] else 4)
    assert list((trainyard.folder / "digits").rglob("events.out.tfevents.*"))
    assert not trainyard.processes()
