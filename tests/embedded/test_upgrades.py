"""Clusters of several versions on one state folder: what is refused is left as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, until

SOURCES = Path(__file__).parents[2] / "src"


def kill_cluster(trainyard: CommandLine) -> None:
    """End it as a power cut would, but for its pod runtime."""
    pid = int(json.loads((trainyard.state / "cluster.json").read_text())["pid"])
    os.kill(pid, signal.SIGKILL)
    until(lambda: "no cluster is up" in trainyard.run("status", code=None), "it is gone")


def start_replicas(trainyard: CommandLine) -> tuple[set[int], Path]:
    """Submit a job; its replicas' processes, and the file that lets them succeed."""
    release = trainyard.folder / "go"
    trains = (
        f"import os, time\nwhile not os.path.exists({str(release)!r}): time.sleep(0.05)\n"
        "print('trained')"
    )
    file = trainyard.manifest("m.yaml", job("survivor", [sys.executable, "-c", trains], replicas=2))
    trainyard.run("submit", "-f", file)
    until(lambda: len(trainyard.processes("trained")) == 2, "both replicas run")
    return set(trainyard.processes("trained")), release


def succeed(trainyard: CommandLine, replicas: set[int], release: Path) -> None:
    """The replicas are the same ones, and the job succeeds with them."""
    assert set(trainyard.processes("trained")) == replicas
    release.touch()
    trainyard.run("wait", "survivor")
    (found,) = [line for line in trainyard.run("list").splitlines() if "survivor" in line]
    assert found.split()[2:5] == ["Succeeded", "0/2", "0"]


def test_a_cluster_that_cannot_start_leaves_the_replicas_of_the_last_one(
    trainyard: CommandLine,
) -> None:
    trainyard.run("up")
    replicas, release = start_replicas(trainyard)
    kill_cluster(trainyard)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = trainyard.run("up", "--port", str(port), code=1)
    assert str(port) in said
    assert "replicas that run go on" in said
    trainyard.run("up")
    succeed(trainyard, replicas, release)


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_was(trainyard: CommandLine) -> None:
    trainyard.run("up")
    replicas, release = start_replicas(trainyard)
    kill_cluster(trainyard)
    store = trainyard.state / "state.db"

    def set_format(number: int, journal: str) -> None:
        with closing(sqlite3.connect(store)) as db:
            db.execute(f"PRAGMA user_version = {number}")
            db.execute(f"PRAGMA journal_mode = {journal}")

    for journal in "DELETE", "WAL":
        set_format(99, journal)
        before = sha256(store.read_bytes()).hexdigest()
        said = trainyard.run("up", code=1)
        assert "a newer trainyard wrote it (format 99" in said
        assert sha256(store.read_bytes()).hexdigest() == before
    set_format(1, "WAL")
    trainyard.run("up")
    succeed(trainyard, replicas, release)


def other_version(folder: Path, change: tuple[str, str] | None = None) -> CommandLine:
    """The command line of other sources on the same state folder."""
    sources = folder / "other"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    with open(sources / "trainyard" / "version.py", "a") as file:
        file.write("# another one\n")
    if change is not None:
        protocol = sources / "trainyard" / "podruntime" / "protocol.py"
        text = protocol.read_text()
        assert text.count(change[0]) == 1
        protocol.write_text(text.replace(*change))
    line = CommandLine(folder)
    line.environment["PYTHONPATH"] = str(sources)
    return line


def test_restart_changes_the_version_under_replicas_and_keeps_the_options(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    other = other_version(tmp_path)
    options = ("--volume", "data=/srv", "--resource", "nvidia.com/gpu=2", "--network", "none")
    more = ("--pass-env", "SOME_*", "--log-max-files", "3", "--strict-scheduling")
    trainyard.run("up", *options, *more)
    record = trainyard.state / "cluster.json"
    before = json.loads(record.read_text())
    replicas, release = start_replicas(trainyard)
    said = other.run("up")
    assert f"of trainyard {before['version']}; this is 0.1.0+" in said
    assert "`trainyard restart`" in said
    elsewhere = CommandLine(tmp_path, start_in=Path("/"))
    elsewhere.environment["PYTHONPATH"] = other.environment["PYTHONPATH"]
    said = elsewhere.run("restart")
    after = json.loads(record.read_text())
    assert f"trainyard {after['version']}, before it {before['version']}" in said
    assert f"the pod runtime of trainyard {before['version']}" in said
    assert f"pod runtime: trainyard {before['version']}" in trainyard.run("status")
    assert after["version"] != before["version"]
    assert after["pid"] != before["pid"]
    for same in ("port", "isolation", "settings"):
        assert after[same] == before[same]
    assert "`trainyard restart`" not in other.run("up", *options, *more)
    trainyard.run("restart")
    assert json.loads(record.read_text())["version"] == before["version"]
    succeed(trainyard, replicas, release)


def test_a_restart_of_what_a_newer_version_stores_touches_nothing(trainyard: CommandLine) -> None:
    trainyard.run("up")
    record = trainyard.state / "cluster.json"
    fields = json.loads(record.read_text())
    record.write_text(json.dumps(fields | {"formats": {"store": 99}, "added": [1]}))
    said = trainyard.run("restart", code=1)
    assert "a newer format (99, this one knows 1): nothing was changed" in said
    assert f"process {fields['pid']}," in trainyard.run("status")


@pytest.mark.parametrize("name", ["channel.json", "tokens.json"])
def test_keys_that_a_newer_version_wrote_are_refused_and_left_as_they_were(
    trainyard: CommandLine, name: str
) -> None:
    trainyard.run("up")
    until((trainyard.state / "channel.json").exists, "the controller has its keys")
    file = trainyard.state / name
    kept = file.read_text() if file.exists() else ""
    file.write_text('{"format": 99}')
    file.chmod(0o600)
    pid = json.loads((trainyard.state / "cluster.json").read_text())["pid"]
    assert "a newer trainyard wrote it" in trainyard.run("restart", code=1)
    assert f"process {pid}," in trainyard.run("status")
    kill_cluster(trainyard)
    said = trainyard.run("up", code=1)
    assert f"{name}: a newer trainyard wrote it (this one knows format 1)" in said
    assert file.read_text() == '{"format": 99}'
    file.write_text(kept) if kept else file.unlink()
    trainyard.run("up")


def test_a_record_of_a_newer_version_is_left_out_and_left_as_it_was(trainyard: CommandLine) -> None:
    trainyard.run("up")
    for name in ("kept", "ahead"):
        trainyard.run("submit", "-f", trainyard.manifest("m.yaml", job(name, ["true"])))
        trainyard.run("wait", name)
    for record in (trainyard.state / "submissions").glob("*/record.json"):
        told = json.loads(record.read_text())
        more = {"added": 1, "git": {"root": "/r", "commit": "1" * 40, "added": 1}}
        if "-ahead" in record.parent.name:
            more = {"format": 99, "objects": "elsewhere"}
        record.write_text(json.dumps(told | more))
    before = {each: each.read_text() for each in trainyard.state.glob("submissions/*/record.json")}
    assert "kept" in trainyard.run("history")
    for name in ("kept", "ahead"):
        trainyard.run("show", name)
    assert "ahead" not in trainyard.run("history")
    trainyard.run("delete", "ahead")
    for file, text in before.items():
        assert file.read_text() == text


def test_a_restart_without_a_cluster_says_how_to_start_one(trainyard: CommandLine) -> None:
    assert "start one with: trainyard up" in trainyard.run("restart", code=1)


def test_a_pod_runtime_whose_files_are_gone_starts_pods_and_relays_all_the_same(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    other = other_version(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        other.run("up", "--allow-port", str(port))
        replicas, release = start_replicas(other)
        (runtime,) = named("trainyard-shim", other)
        until(lambda: keeps_copy(runtime), "the runtime keeps a copy of itself")
        kill_cluster(other)
        shutil.rmtree(tmp_path / "other")
        (zygote,) = named("pod-zygote", other, below=runtime)
        os.kill(zygote, signal.SIGKILL)
        trainyard.run("up", "--allow-port", str(port))
        connects = f"import socket; socket.create_connection(('host.trainyard.internal', {port}))"
        file = trainyard.manifest("n.yaml", job("next", [sys.executable, "-c", connects]))
        trainyard.run("submit", "-f", file)
        trainyard.run("wait", "next")
    assert named("trainyard-shim", trainyard) == [runtime]
    succeed(trainyard, replicas, release)


def test_a_pod_runtime_without_pods_makes_room_for_that_of_the_present_version(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    other = other_version(tmp_path, ("\nVERSION = 7\n", "\nVERSION = 8\n"))
    other.run("up")
    other.run("submit", "-f", other.manifest("m.yaml", job("ended", ["true"])))
    other.run("wait", "ended")
    (before,) = named("trainyard-shim", other)
    until(lambda: other.run("status").count("0 running"), "its pod has ended")
    kill_cluster(other)
    trainyard.run("up")
    (after,) = named("trainyard-shim", trainyard)
    assert after != before
    assert "pod runtime" not in trainyard.run("status")
    kill_cluster(trainyard)
    assert "the cluster is down" in trainyard.run("down")
    assert not trainyard.processes()


def named(name: str, trainyard: CommandLine, below: int = 0) -> list[int]:
    """Living processes of this name: of this test, or children of one of its processes."""
    if below:
        pids = list(map(int, Path(f"/proc/{below}/task/{below}/children").read_text().split()))
    else:
        pids = trainyard.processes()
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def keeps_copy(runtime: int) -> bool:
    folder = Path(f"/proc/{runtime}/fd")
    copies = [fd for fd in folder.iterdir() if "memfd:podruntime" in os.readlink(fd)]
    return bool(copies) and copies[0].stat().st_size > 0


def test_a_pod_runtime_of_another_wire_version_is_refused_and_goes_on(
    trainyard: CommandLine, tmp_path: Path
) -> None:
    other = other_version(tmp_path, ("\nVERSION = 7\n", "\nVERSION = 8\n"))
    other.run("up")
    replicas, release = start_replicas(other)
    before = other.run("status").splitlines()[0].partition("process")[2]
    assert "(wire version 8, here 7): nothing was changed" in trainyard.run("restart", code=1)
    assert other.run("status").splitlines()[0].partition("process")[2] == before
    kill_cluster(other)
    said = trainyard.run("up", code=1)
    assert "(wire version 8, here 7)" in said
    other.run("up")
    succeed(other, replicas, release)
