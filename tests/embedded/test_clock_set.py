"""The time of day is set under a cluster: back-offs and deadlines last as long as they should.

libfaketime sets it, for the cluster's processes alone, and leaves the monotonic clock as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, shell, until
from tests.tools import missing

LIBRARY = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture
def trainyard(tmp_path: Path) -> Iterator[CommandLine]:
    """A cluster whose time of day `set_clock` sets."""
    if not LIBRARY.exists():
        missing("setting the clock of a process takes libfaketime (the package faketime)")
    line = CommandLine(tmp_path)
    set_clock(line, "+0")
    faked = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    line.environment.update(faked)
    line.run("up")
    for name in faked:
        del line.environment[name]
    yield line
    line.run("down", code=None)
    line.kill_everything()


def set_clock(trainyard: CommandLine, ahead: str) -> None:
    draft = trainyard.folder / "clock.new"
    draft.write_text(ahead)
    draft.rename(trainyard.folder / "clock")


def test_a_back_off_does_not_last_an_hour_longer_when_the_clock_is_set_back(
    trainyard: CommandLine,
) -> None:
    ran = trainyard.folder / "ran"
    script = shell(f"echo >> {ran}; test $(wc -l < {ran}) -ge 5")
    failing = job("failing", script, policy="OnFailure", runPolicy={"backoffLimit": 10})
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", failing))
    until(
        lambda: "Restarts:     4 of" in trainyard.run("show", "failing"), "it waits for its fifth"
    )
    set_clock(trainyard, "-1h")
    trainyard.run("wait", "failing", "--timeout", "600")
    assert "Succeeded" in trainyard.run("list")


def test_a_deadline_is_not_over_when_the_clock_is_set_forward_and_is_kept(
    trainyard: CommandLine,
) -> None:
    long = job("long", ["sleep", "3600"], runPolicy={"activeDeadlineSeconds": 40})
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", long))
    trainyard.run("wait", "long", "--for", "phase=Running")
    began = time.monotonic()
    set_clock(trainyard, "+1h")
    trainyard.run("wait", "long", "--for", "phase=Failed", "--timeout", "600")
    assert time.monotonic() - began > 30
    assert "DeadlineExceeded" in trainyard.run("events", "long") + trainyard.run("show", "long")
