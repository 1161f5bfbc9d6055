"""The state folder goes away under a cluster that runs: no second one starts beside it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, until
from tests.tools import missing


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


def test_a_folder_that_was_moved_names_the_cluster_that_runs(trainyard: CommandLine) -> None:
    moved = trainyard.folder / "moved"
    trainyard.state.rename(moved)
    trainyard.environment["TRAINYARD_STATE_DIR"] = str(moved)
    replica = trainyard.processes("sleep 3600")
    said = f"still runs it, but not here: it listens at {trainyard.state}/api.sock"
    for command in (["status"], ["list"], ["up"], ["doctor"]):
        assert said in trainyard.run(*command, code=None)
    assert trainyard.processes("sleep 3600") == replica
    moved.rename(trainyard.state)
    trainyard.environment["TRAINYARD_STATE_DIR"] = str(trainyard.state)
    assert "1 Running" in trainyard.run("status")
    trainyard.state.rename(moved)
    trainyard.environment["TRAINYARD_STATE_DIR"] = str(moved)
    trainyard.run("down")
    until(lambda: not trainyard.processes(), "all of it has ended")


def test_a_file_system_that_died_under_the_folder_is_one_line_and_down_works(
    trainyard: CommandLine,
) -> None:
    mount_dead_fuse(trainyard.state)
    try:
        said = f"cannot use the state folder {trainyard.state}: Transport endpoint is not connected"
        file = str(trainyard.folder / "m.yaml")
        commands = (["status"], ["list"], ["up"], ["submit", "-f", file], ["run", "-f", file])
        for command in (*commands, ["logs", "lost"], ["doctor"], ["restart"]):
            assert said in trainyard.run(*command, code=1)
        assert "Transport endpoint is not connected" in trainyard.run("history", code=1)
        assert trainyard.processes("sleep 3600")
        assert "the cluster is down" in trainyard.run("down")
        until(lambda: not trainyard.processes(), "all of it has ended")
        assert said in trainyard.run("down", code=1)
    finally:
        subprocess.run(["umount", trainyard.state], check=True)
    trainyard.run("up")


def mount_dead_fuse(folder: Path) -> None:
    """Put a FUSE file system whose daemon has died over a folder."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        missing(f"mounting takes root and FUSE: {error}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    failed = libc.mount(b"fuse", bytes(folder), b"fuse", 0, options)
    os.close(device)
    if failed:
        missing(f"cannot mount: {os.strerror(ctypes.get_errno())}")


def sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}
