"""Processes that are stopped, as the node sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.embedded.command_line import until
from trainyard.embedded.node.containers.stopped_processes import find_stopped_processes

_PROGRAM = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def tree() -> Iterator[tuple[int, int]]:
    """A process and its child."""
    command = [sys.executable, "-IS", "-c", _PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        yield first.pid, child
        os.kill(child, signal.SIGKILL)
        first.kill()


def test_what_is_stopped_below_a_first_process_is_seen_until_it_goes_on(
    tree: tuple[int, int],
) -> None:
    first, child = tree
    assert find_stopped_processes([first]) == {}
    os.kill(child, signal.SIGSTOP)
    until(lambda: find_stopped_processes([first]) == {first: (child,)}, "it is stopped")
    assert find_stopped_processes([os.getpid()])[os.getpid()] == (child,)
    # It is not below itself, and nothing is below a process that is gone.
    assert find_stopped_processes([child, 1 << 30]) == {}
    os.kill(child, signal.SIGCONT)
    until(lambda: find_stopped_processes([first]) == {}, "it goes on")


def test_nothing_is_looked_at_where_nothing_is_observed() -> None:
    assert find_stopped_processes([]) == {}
