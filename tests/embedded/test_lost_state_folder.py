"""The state folder goes away under a cluster that runs: no second one starts beside it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, until


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    """A cluster with a replica that runs."""
    line = CommandLine(tmp_path)
    line.run("up")
    line.run("submit", "-f", line.manifest("m.yaml", job("lost", ["sleep", "3600"])))
    until(lambda: line.processes("sleep 3600"), "the replica runs")
    yield line
    line.run("down", code=None)
    line.kill_everything()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_no_second_cluster_starts_and_down_ends_the_first(
    trainyard: CommandLine, is_killed: bool, comes_back: bool
) -> None:
    replica = trainyard.processes("sleep 3600")
    if is_killed:
        for pid in trainyard.processes("trainyard"):
            if Path(f"/proc/{pid}/comm").read_text().startswith("python"):
                os.kill(pid, signal.SIGKILL)
    if comes_back:  # as with a file system that is mounted anew
        shutil.copytree(trainyard.state, trainyard.folder / "copy", ignore=sockets)
    shutil.rmtree(trainyard.state)
    if comes_back:
        (trainyard.folder / "copy").rename(trainyard.state)
    said = "files were removed or replaced"
    assert said in trainyard.run("up", code=1)
    assert trainyard.processes("sleep 3600") == replica
    for command in (["status"], ["list"], ["submit", "-f", str(trainyard.folder / "m.yaml")]):
        assert said in trainyard.run(*command, code=None)
    assert "the cluster is down" in trainyard.run("down")
    until(lambda: not trainyard.processes(), "all of it has ended")
    trainyard.run("up")
    listed = trainyard.run("list")
    assert ("lost" in listed) == comes_back


def sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}
