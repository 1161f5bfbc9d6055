"""`trainyard doctor`: what is wrong is named with what to do; `up` starts beside it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.as_user import USER
from tests.embedded.command_line import CommandLine, job, until
from tests.embedded.terminal import started_on_terminal
from tests.tools import missing

JOB = {
    "apiVersion": "batch.tensorstack.dev/v1beta1",
    "kind": "GenericJob",
    "metadata": {"name": "a"},
    "spec": {
        "replicaSpecs": [
            {
                "type": "w",
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "x", "command": ["true"]}],
                    }
                },
            }
        ]
    },
}


def stored(kind: str, name: str, namespace: str = "default", **fields: Any) -> bytes:
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "2"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if not namespace:
        del metadata["namespace"]
    return json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}).encode()


def problems(trainyard: CommandLine, code: int) -> list[dict[str, str]]:
    found = json.loads(trainyard.run("doctor", "-o", "json", code=code))
    return [each for each in found if each["state"] == "problem"]


def test_a_cluster_starts_beside_poisonous_objects_and_names_them(tmp_path: Path) -> None:
    trainyard = CommandLine(tmp_path)
    trainyard.run("up")
    trainyard.run("down")
    assert problems(trainyard, 0) == []
    with sqlite3.connect(trainyard.state / "state.db") as db:
        for row in (
            ("pods", "default", "empty", stored("Pod", "empty", spec={})),
            ("services", "default", "s", stored("Service", "s", spec={"clusterIP": "x"})),
            ("genericjobs.batch.tensorstack.dev", "default", "j", b"\xff{"),
            ("nodes", "", "bare", stored("Node", "bare", namespace="")),
        ):
            db.execute("INSERT INTO objects VALUES (?, ?, ?, ?)", row)
    db.close()
    expected = {"pods default/empty", "services default/s", "genericjobs.batch.tensorstack.dev"}

    def named(text: str) -> bool:
        return all(name in text for name in expected)

    assert named(json.dumps(problems(trainyard, 1)))
    try:
        said = trainyard.run("up")
        assert named(said)
        assert "see trainyard doctor" in said
        assert named(trainyard.run("doctor", code=1))
        assert "node bare:" in trainyard.run("status")
        trainyard.run("run", "-f", trainyard.manifest("job.yaml", JOB))
        trainyard.run("delete", "j")
        assert "genericjobs" not in trainyard.run("doctor", code=1)
    finally:
        trainyard.run("down")


def test_a_record_of_a_wrong_type_is_named_and_stands_in_no_ones_way(tmp_path: Path) -> None:
    trainyard = CommandLine(tmp_path)
    trainyard.state.mkdir(mode=0o700)
    (trainyard.state / "cluster.json").write_text('{"pid": "x", "socket": 5}')
    assert "cluster.json cannot be read" in trainyard.run("status", code=3)
    (found,) = problems(trainyard, 1)
    assert found["check"] == "cluster"
    try:
        trainyard.run("up")
        assert problems(trainyard, 0) == []
    finally:
        trainyard.run("down")


def test_a_way_out_that_died_with_its_process_is_told_as_that_and_comes_back(
    tmp_path: Path,
) -> None:
    trainyard = CommandLine(tmp_path)
    try:
        trainyard.run("up")
        if "isolation: plain" in trainyard.run("doctor", code=None):
            missing("plain pods have the machine's network")
        (starter,) = (p for p in trainyard.processes() if name_of(p) == "egress-starter")
        os.kill(starter, signal.SIGKILL)
        said = "the process that starts relays has died"
        until(lambda: said in trainyard.run("doctor", code=None), "doctor tells")
        shown = trainyard.run("doctor", code=None)
        assert "`trainyard restart` once no replica runs" in shown
        assert "kernel" not in shown.partition(said)[2].splitlines()[1]
        trainyard.run("restart")
        assert "pods reach what this machine reaches" in trainyard.run("doctor", code=None)
    finally:
        trainyard.run("down", code=None)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize("is_killed", [False, True])
def test_objects_of_a_store_that_was_cut_to_nothing_come_back(
    tmp_path: Path, is_killed: bool
) -> None:
    trainyard = CommandLine(tmp_path)
    copy = trainyard.state / "state.db.backup"
    try:
        trainyard.run("up")
        trainyard.run("submit", "-f", trainyard.manifest("job.yaml", JOB))
        trainyard.run("wait", "a")
        assert "is up in" in trainyard.run("doctor", "--restore", code=1)
        if is_killed:
            until(copy.exists, "there is a copy")
            trainyard.run("submit", "-f", trainyard.manifest("b.yaml", job("b", ["sleep", "600"])))
            trainyard.run("wait", "b", "--for", "phase=Running")
            seen = copy.stat().st_mtime_ns
            until(lambda: copy.stat().st_mtime_ns > seen, "there is a new one")
            pid = json.loads((trainyard.state / "cluster.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
        else:
            trainyard.run("down")
        os.truncate(trainyard.state / "state.db", 0)
        assert "doctor --restore" in trainyard.run("up", code=1)
        (found,) = problems(trainyard, 1)
        assert "doctor --restore" in found["text"]
        assert "`trainyard up` goes on with them" in trainyard.run("doctor", "--restore")
        assert "nothing was changed" in trainyard.run("doctor", "--restore")
        assert problems(trainyard, 0) == []
        replicas = trainyard.processes("sleep 600")
        assert bool(replicas) == is_killed
        trainyard.run("up")
        assert "Succeeded" in trainyard.run("list")
        assert trainyard.processes("sleep 600") == replicas
        if is_killed:
            trainyard.run("wait", "b", "--for", "phase=Running")
            assert "Restarts:     0 of" in trainyard.run("show", "b")
    finally:
        trainyard.run("down", code=None)


@pytest.mark.parametrize("name", ["shim.sock", "cluster.json", "cluster.log", "pods", "runs"])
def test_a_folder_for_a_file_and_a_file_for_a_folder_are_named(tmp_path: Path, name: str) -> None:
    trainyard = CommandLine(tmp_path)
    path = trainyard.state / name
    path.mkdir(parents=True, mode=0o700) if "." in name else trainyard.state.mkdir(mode=0o700)
    path.is_dir() or path.touch()
    said = f"{path} is a f"
    file = trainyard.manifest("job.yaml", JOB)
    assert said in trainyard.run("up", code=1)
    assert said in trainyard.run("run", "-f", file, code=1)
    assert said in str(problems(trainyard, 1))
    assert "no cluster is up" in trainyard.run("down", code=1)
    for command in (["status"], ["list"], ["submit", "-f", file]):
        trainyard.run(*command, code=None)
    path.rmdir() if path.is_dir() else path.unlink()
    trainyard.run("run", "-f", file)


@pytest.mark.parametrize("command", ["run", "up"])
@pytest.mark.parametrize("files", [20, 64])
def test_a_limit_of_open_files_that_is_too_low_is_named_with_its_remedy(
    tmp_path: Path, command: str, files: int
) -> None:
    trainyard = CommandLine(tmp_path, wrapper=("prlimit", f"--nofile={files}:{files}"))
    arguments = ("-f", trainyard.manifest("job.yaml", JOB)) if command == "run" else ()
    said = trainyard.run(command, *arguments, code=1)
    assert f"RLIMIT_NOFILE) is {files}" in said
    assert "ulimit -n" in said


def test_a_limit_of_processes_that_is_too_low_is_named_with_its_remedy(tmp_path: Path) -> None:
    trainyard = as_user(tmp_path, "prlimit", "--nproc=20:20")
    said = trainyard.run("run", "-f", trainyard.manifest("job.yaml", JOB), code=1)
    assert "RLIMIT_NPROC) is 20" in said
    assert "ulimit -u" in said


ABOUT_THE_MACHINE = {
    "machine",
    "isolation",
    "network",
    "control groups",
    "GPUs",
    "Python",
    "launchers",
    "/dev/shm",
    "disk",
    "limits",
    "kubectl",
}


def found(trainyard: CommandLine, code: int = 0) -> dict[str, dict[str, str]]:
    """What is found, by check; of several the last."""
    return {
        each["check"]: each for each in json.loads(trainyard.run("doctor", "-o", "json", code=code))
    }


def test_all_that_the_machine_can_do_is_told_without_a_cluster(tmp_path: Path) -> None:
    trainyard = CommandLine(tmp_path)
    told = found(trainyard)
    assert {*told} == {*ABOUT_THE_MACHINE, "state folder", "cluster", "objects"}
    assert all(each["state"] == "ok" or each["fix"] for each in told.values())
    assert sys.executable in told["Python"]["text"]
    assert not trainyard.state.exists()  # looked at, and nothing made


def as_user(tmp_path: Path, *wrapper: str) -> CommandLine:
    """The command line of an unprivileged user in a folder of their own."""
    if os.geteuid():
        missing("becoming another user needs root")
    os.chown(tmp_path, USER, USER)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    before = (sys.executable, "-m", "tests.embedded.as_user")
    return CommandLine(tmp_path, wrapper=(*before, *wrapper), start_in=Path.cwd())


def test_a_hostile_environment_is_told_and_not_stumbled_over(tmp_path: Path) -> None:
    """No namespaces, home, folder to write to or programs, and few files and processes."""
    limits = ("prlimit", "--nofile=40:40", "--nproc=20:20", "env", "-u", "HOME", "PATH=/nowhere")
    trainyard = as_user(tmp_path, "--forbid-namespaces", *limits)
    trainyard.environment["TRAINYARD_STATE_DIR"] = "/usr/local/nobody/may/write/here"
    told = found(trainyard, code=1)
    states = {check: each["state"] for check, each in told.items()}
    assert states["state folder"] == states["limits"] == "problem"
    assert "cannot be made, since /usr" in told["state folder"]["text"]
    assert "max_user_namespaces" in told["isolation"]["fix"]
    assert states["isolation"] == states["launchers"] == "note"
    assert "pdsh" in told["launchers"]["fix"]
    del trainyard.environment["TRAINYARD_STATE_DIR"]
    told = found(trainyard, code=1)
    assert "there is no home folder" in told["state folder"]["text"]
    assert {*told} >= ABOUT_THE_MACHINE


def test_so_few_files_that_nothing_can_be_tried_are_told(tmp_path: Path) -> None:
    told = found(CommandLine(tmp_path, wrapper=("prlimit", "--nofile=8:8")), code=1)
    assert told["limits"]["state"] == told["isolation"]["state"] == "problem"


def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path) -> None:
    trainyard = CommandLine(tmp_path)
    trainyard.run("up")
    pid = json.loads((trainyard.state / "cluster.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        told = found(trainyard, code=1)["cluster"]
        assert "does not answer" in told["text"]
        assert f"kill -9 {pid}" in told["fix"]
    finally:
        os.kill(pid, signal.SIGCONT)
        trainyard.run("down")


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (60, 24)])
def test_all_of_it_fits_on_a_screen(tmp_path: Path, columns: int, lines: int) -> None:
    with started_on_terminal(CommandLine(tmp_path), "doctor", columns=columns) as terminal:
        code, text = terminal.end()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert code == 0
    assert len(shown) <= lines
    assert max(map(len, shown)) <= columns
    assert {line[8:].partition(":")[0] for line in shown} >= {"isolation", "Python", "disk"}
