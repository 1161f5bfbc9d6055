"""A command on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine


def on_terminal(trainyard: CommandLine, *arguments: str, typed: str = "") -> tuple[int, str]:
    """Exit code and everything that a terminal of 100 columns received; `typed` is its input."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainyard.cli.main", *arguments],
        cwd=trainyard.folder,
        env={**trainyard.environment, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    received = bytearray()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and select.select([ours], [], [], PATIENCE_SECONDS)[0]:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        received += data
    os.close(ours)
    return process.wait(10), received.decode(errors="replace")
