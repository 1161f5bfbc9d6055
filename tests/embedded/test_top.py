"""`trainyard top`, in a pipe and on a terminal, and the usage in the table of `run`."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.embedded.command_line import CommandLine, job, until
from tests.embedded.terminal import started_on_terminal

WORK = """
import os, pathlib
held = b"x" * ((30 if os.environ["RANK"] == "0" else 60) << 20)
while not pathlib.Path("stop").exists():
    for _ in range(100000):
        pass
"""


@pytest.fixture
def trainyard(trainyard: CommandLine) -> CommandLine:
    trainyard.run("up")
    return trainyard


def _memory(trainyard: CommandLine) -> dict[str, int]:
    """By replica, in MiB rounded down to 30, so that the interpreter itself does not count."""
    found = re.findall(r"(?m)^busy +(worker-[01]) +Running +\d+m +(\d+)Mi", trainyard.run("top"))
    return {name: int(amount) // 30 * 30 for name, amount in found}


def test_what_replicas_use_is_shown_while_they_run(trainyard: CommandLine) -> None:
    assert "No replica of a job runs in namespace default." in trainyard.run("top")
    assert "there is no job nosuch" in trainyard.run("top", "nosuch", code=1)
    (trainyard.folder / "work.py").write_text(WORK)
    file = trainyard.manifest("m.yaml", job("busy", [sys.executable, "work.py"], replicas=2))
    with started_on_terminal(trainyard, "run", "-f", file) as run:
        run.until(r"worker-1 +Running +[1-9]\d*m +\d\dMi")
        until(lambda: _memory(trainyard) == {"worker-0": 30, "worker-1": 60}, "all that is held")
        rows = [line.split() for line in trainyard.run("top", "--sort-by", "memory").splitlines()]
        assert rows[0] == ["JOB", "REPLICA", "PHASE", "CPU", "MEMORY"]
        assert [row[1] for row in rows[1:]] == ["worker-1", "worker-0"]
        assert 60 <= int(rows[1][4].removesuffix("Mi")) <= 100
        by_container = trainyard.run("top", "busy", "--containers", "-A")
        assert re.search(r"(?m)^default +busy +worker-0 +main +Running", by_container)
        told = json.loads(trainyard.run("top", "busy", "-o", "json"))
        assert {item["kind"] for item in told["items"]} == {"PodMetrics"}
        assert len(told["items"]) == 2
        asked = {"_TRAINYARD_COMPLETE": "bash_complete", "COMP_WORDS": "trainyard top b"}
        trainyard.environment.update(asked | {"COMP_CWORD": "2"})
        assert trainyard.run() == "plain,busy\n"
        del trainyard.environment["_TRAINYARD_COMPLETE"]
        with started_on_terminal(trainyard, "top", "busy", columns=30) as top:
            top.until(r"\d\d:\d\d:\d\d  .*: CPU \d+% ")
            top.until(r"worker-1  Running +\d+m\s+MEMORY \d\dMi")
            top.forget()
            top.until(r"worker-1  Running")  # it goes on
            (trainyard.folder / "stop").touch()
            assert run.end()[0] == 0
            assert top.end()[0] in (0, 1)  # 1: the job was deleted by `run` before it was looked at
