"""A command on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """What a command that goes on has written to its terminal."""

    def __init__(self, ours: int, process: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self._process = process
        self._received = bytearray()

    def resize(self, columns: int, lines: int) -> None:
        """As a user does with a window; the command is told."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process.send_signal(signal.SIGWINCH)  # it is not of the terminal's session

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def forget(self) -> None:
        """Look at what comes from now on only."""
        self._received.clear()

    @property
    def raw(self) -> str:
        return self._received.decode(errors="replace")

    def until(self, pattern: str) -> str:
        """Wait for what matches in the text without escapes; returns what was matched."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(pattern, _ESCAPES.sub("", self.raw))):
            is_there = time.monotonic() < deadline and self._read()
            assert is_there, f"no {pattern} in {self.raw[-2000:]!r}"
        return found[0]

    def end(self, patience: float = PATIENCE_SECONDS) -> tuple[int, str]:
        """Exit code of the command, and all that it wrote; it may be silent for so many seconds."""
        while self._read(patience):
            pass
        return self._process.wait(PATIENCE_SECONDS), self.raw

    def _read(self, patience: float = PATIENCE_SECONDS) -> bool:
        """Take what has come; False at its end, or if nothing comes for long."""
        if not select.select([self._ours], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self._received += data
        return bool(data)


@contextlib.contextmanager
def started_on_terminal(
    trainyard: CommandLine,
    *arguments: str,
    columns: int = 100,
    lines: int = 40,
    program: Sequence[str] = (sys.executable, "-m", "trainyard.cli.main"),
    **environment: str,
) -> Iterator[Terminal]:
    """A command on a terminal, for as long as the block lasts."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {
        name: value
        for name, value in trainyard.environment.items()
        if name not in ("COLUMNS", "LINES")  # xdist sets them, and they come before the terminal's
    }
    process = subprocess.Popen(
        [*program, *arguments],
        cwd=trainyard.folder,
        env={**inherited, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        os.close(ours)
        process.kill()
        process.wait(PATIENCE_SECONDS)


def on_terminal(trainyard: CommandLine, *arguments: str, typed: str = "") -> tuple[int, str]:
    """Exit code and everything that a terminal of 100 columns received; `typed` is its input."""
    with started_on_terminal(trainyard, *arguments, COLUMNS="100", LINES="40") as terminal:
        terminal.type(typed)
        return terminal.end()


def rows(text: str, columns: int) -> list[str]:
    """What a terminal of so many columns shows of lines that were written one after the other."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").rstrip("\n").split("\n")
    return [
        line[start : start + columns]
        for line in lines
        for start in range(0, max(len(line), 1), columns)
    ]
