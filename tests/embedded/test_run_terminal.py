"""`trainyard run` on a terminal: the live table, and log lines above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, shell
from tests.embedded.terminal import on_terminal

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.kill_everything()


def test_the_table_shows_each_replica_while_it_runs(trainyard: CommandLine) -> None:
    script = shell("echo hello from $RANK; sleep 1.5")
    file = trainyard.manifest("m.yaml", job("shown", script, replicas=2))
    code, screen = on_terminal(trainyard, "run", "-f", file)
    assert code == 0
    text = _ESCAPES.sub("", screen)
    assert "REPLICA" in text
    assert re.search(r"worker-0 +Running", text)
    assert re.search(r"worker-1 +Running", text)
    assert "[worker-0] hello from 0" in text
    assert "[worker-1] hello from 1" in text
    assert "PyTorchTrainingJob shown: Succeeded" in text
    assert screen.rstrip().endswith("pods")  # the table is gone, the summary is last


def test_markup_and_colours_in_logs_are_left_alone(trainyard: CommandLine) -> None:
    script = shell(r"echo '[bold]not markup[/bold]'; printf '\033[31mred\033[0m\n'")
    file = trainyard.manifest("m.yaml", job("colours", script))
    _, screen = on_terminal(trainyard, "run", "-f", file)
    assert "[bold]not markup[/bold]" in _ESCAPES.sub("", screen)
    assert "\x1b[31mred" in screen
