"""What a program has printed is in its log, however it ends, although Python would hold it back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, until

SCRIPT = """\
import pathlib, sys, time
for i in range(20): print("step", i, "loss", .5)
pathlib.Path("printed").touch()
time.sleep(1000)
"""


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.kill_everything()


def _kill(trainyard: CommandLine) -> None:
    for pid in trainyard.processes("lost.py"):
        os.kill(pid, signal.SIGKILL)
    trainyard.run("wait", "lost", code=1)


def _pause(trainyard: CommandLine) -> None:
    trainyard.run("pause", "lost")
    trainyard.run("wait", "lost", "--for", "phase=Paused")


@pytest.mark.parametrize("end", [_kill, _pause], ids=["SIGKILL", "pause"])
def test_lines_before_an_end_are_in_the_log(
    trainyard: CommandLine, end: Callable[[CommandLine], None]
) -> None:
    (trainyard.folder / "lost.py").write_text(SCRIPT)
    made = job("lost", ["python", "lost.py"], pod={"terminationGracePeriodSeconds": 1})
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("job.yaml", made))
    until((trainyard.folder / "printed").exists, "the script prints")
    end(trainyard)
    said = trainyard.run("logs", "lost").splitlines()
    trainyard.run("down")
    assert [line for line in said if line.startswith("step")] == [
        f"step {i} loss 0.5" for i in range(20)
    ]


def test_lines_of_one_rank_are_shown_wherever_it_runs(trainyard: CommandLine) -> None:
    """Two in one replica, by their tags; two in replicas of their own, by the replica."""
    (trainyard.folder / "ranks.py").write_text("import os\nprint('I am', os.environ['RANK'])\n")
    together = job(
        "together",
        container={"args": ["ranks.py"]},
        torchrunConfig={"enabled": True, "procPerNode": "2"},
    )
    apart = job("apart", ["python", "ranks.py"], replicas=2)
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("jobs.yaml", together, apart))
    trainyard.run("wait", "together", "apart")
    assert trainyard.run("logs", "together", "--rank", "1") == "[rank1]: I am 1\n"
    assert trainyard.run("logs", "apart", "--rank", "1") == "I am 1\n"
    assert "no line names rank 7" in trainyard.run("logs", "together", "--rank", "7")
    assert trainyard.run("logs", "together", "-f", "--rank", "0") == "[rank0]: I am 0\n"
    trainyard.run("down")
