"""Logs that rotate under their readers, and readers that do not read: nothing grows without end."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, until
from tests.tools import soak
from trainyard.client.log_streams import LONGEST_LINE

MIB = 1 << 20
LINES, LINE_BYTES = 1_500_000, 80
WRITE_LINES = f"""
import os, sys, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
for start in range(0, {LINES}, 500):
    sys.stdout.write("".join("%07d %s\\n" % (n, "x" * 71) for n in range(start, start + 500)))
"""
WRITE_ONE = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
for _ in range({mib}):
    os.write(1, b"x" * (1 << 20))
"""
WRITE_JUNK = """
import os, random
left = memoryview(random.Random(7).randbytes(4 << 20))
while left:
    left = left[os.write(1, left):]
"""


@pytest.fixture
def trainyard(trainyard: CommandLine) -> CommandLine:
    trainyard.run("up")
    return trainyard


def submit(trainyard: CommandLine, name: str, script: str) -> None:
    command = [sys.executable, "-c", script]
    trainyard.run("submit", "-f", trainyard.manifest(f"{name}.yaml", job(name, command)))


def log_bytes(trainyard: CommandLine) -> int:
    """What the pods' logs take."""
    total = 0
    for path in (trainyard.state / "pods").glob("*/*/*.log*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # rotated away just now
            continue
    return total


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def most_memory(pid: int) -> int:
    """The most that a process ever had resident, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


class Following:
    """`trainyard logs -f JOB`, with its output in a file."""

    def __init__(self, trainyard: CommandLine, name: str, number: int) -> None:
        self.path = trainyard.folder / f"{name}-{number}.out"
        command = [sys.executable, "-m", "trainyard.cli.main", "logs", "-f", name]
        with self.path.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdout=out, env=trainyard.environment, cwd=trainyard.folder
            )
        self._most = 0
        self._measuring = threading.Thread(target=self._measure)
        self._measuring.start()
        until(lambda: self.path.read_bytes().startswith(b"ready\n"), "it follows")

    def _measure(self) -> None:
        """What a parent has when it starts a process counts in that one's resource usage."""
        while self._process.poll() is None:
            with contextlib.suppress(OSError, ValueError):  # it is just ending
                self._most = most_memory(self._process.pid)
            time.sleep(0.05)

    def end(self) -> int:
        """Wait for its end; the most memory that it had, in bytes."""
        self._measuring.join()
        assert self._process.returncode == 0
        return self._most


def stuck(trainyard: CommandLine, name: str) -> socket.socket:
    """A client that follows a log and reads nothing of it."""
    [pod] = (trainyard.state / "pods").glob(f"default_{name}-*")
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(trainyard.state / "api.sock"))
    path = f"/api/v1/namespaces/default/pods/{pod.name.split('_')[1]}/log?follow=true"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return connection


def cluster_pid(trainyard: CommandLine) -> int:
    return int(json.loads((trainyard.state / "cluster.json").read_text())["pid"])


def test_a_fast_writer_loses_no_line_to_its_followers_and_takes_no_memory(
    trainyard: CommandLine,
) -> None:
    """Decision 107: what they have yet to read is kept for them; then the usual is left."""
    submit(trainyard, "fast", WRITE_LINES)
    until(lambda: log_bytes(trainyard) > 0, "it runs")
    followers = [Following(trainyard, "fast", number) for number in range(2)]
    before = most_memory(cluster_pid(trainyard))
    with stuck(trainyard, "fast"):
        (trainyard.folder / "go").touch()
        trainyard.run("wait", "fast")
        for follower in followers:
            assert 0 < follower.end() < 200 * MIB
    assert most_memory(cluster_pid(trainyard)) - before < 50 * MIB
    for follower in followers:
        check(follower.path.read_bytes().splitlines()[1:])
    until(lambda: log_bytes(trainyard) <= 52 * MIB, "nobody reads it any more")
    kept = trainyard.run("logs", "fast").splitlines()
    numbers = [int(line.split(" ")[0]) for line in kept]
    assert numbers == list(range(numbers[0], LINES))
    assert len(kept) * LINE_BYTES > 20 * MIB
    assert trainyard.run("logs", "fast", "--tail", "3").splitlines() == kept[-3:]


def check(lines: list[bytes]) -> None:
    """Numbered lines, each once, from the first to the last."""
    assert all(len(line) == LINE_BYTES - 1 for line in lines)
    assert [int(line.split(b" ")[0]) for line in lines] == list(range(LINES))


def test_a_line_without_an_end_takes_no_memory(trainyard: CommandLine) -> None:
    mib = soak(200, 1024)
    submit(trainyard, "endless", WRITE_ONE.format(mib=mib))
    until(lambda: log_bytes(trainyard) > 0, "it runs")
    follower = Following(trainyard, "endless", 0)
    shims = [pid for pid in trainyard.processes() if name_of(pid) == "trainyard-shim"]
    pids = [cluster_pid(trainyard), *shims]
    assert len(pids) >= 2
    before = [most_memory(pid) for pid in pids]
    (trainyard.folder / "go").touch()
    trainyard.run("wait", "endless")
    assert 0 < follower.end() < 200 * MIB
    after = [most_memory(pid) for pid in pids]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 50 * MIB
    assert log_bytes(trainyard) <= 52 * MIB
    lines = follower.path.read_bytes().splitlines()
    assert {line[:1] for line in lines[1:]} <= {b"x", b"["}
    assert max(map(len, lines)) <= LONGEST_LINE


def test_bytes_that_are_no_text_are_kept_as_they_are(trainyard: CommandLine) -> None:
    submit(trainyard, "junk", WRITE_JUNK)
    trainyard.run("wait", "junk")
    command = [sys.executable, "-m", "trainyard.cli.main", "logs", "junk"]
    out = subprocess.run(
        command, env=trainyard.environment, cwd=trainyard.folder, capture_output=True, check=True
    ).stdout
    assert out.removesuffix(b"\n") == random.Random(7).randbytes(4 << 20).removesuffix(b"\n")


def log_files(folder: Path, name: str) -> list[int]:
    """The sizes of the files of a pod's log."""
    return [path.stat().st_size for path in folder.glob(f"pods/default_{name}-*/*/*.log*")]


def test_how_much_is_kept_can_be_chosen(tmp_path: Path) -> None:
    """And a cluster of `run` keeps more than one in the background."""
    line = CommandLine(tmp_path)
    write = [sys.executable, "-c", "for n in range(300_000): print('%07d' % n, 'x' * 71)"]
    manifest = line.manifest("m.yaml", job("talks", write))
    try:
        said = line.run("up", "--log-max-size", "5", code=2)
        assert "5 is too little: 256Ki or more" in said
        assert "--log-max-size" in line.run("up", "--log-max-size", "much", code=2)
        line.run("up", "--log-max-size", "512Ki", "--log-max-files", "3")
        line.run("submit", "-f", manifest)
        line.run("wait", "talks")
        sizes = log_files(line.state, "talks")
        assert len(sizes) == 3
        assert max(sizes) <= 512 << 10
        line.run("down")
        line.run("run", "-f", manifest)
        [run] = (line.state / "runs").iterdir()
        [size] = log_files(run, "talks")
        assert size > 300_000 * LINE_BYTES
    finally:
        line.run("down", code=None)
        line.kill_everything()
