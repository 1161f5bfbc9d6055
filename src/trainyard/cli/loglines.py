"""What is wanted of logs, and how their lines are printed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import click

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")


@dataclass(frozen=True, slots=True)
class Options:
    """What is wanted of the logs."""

    replica: str = ""
    container: str = ""
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    timestamps: bool = False
    since_seconds: int | None = None


@dataclass(slots=True)
class Printer:
    """Writes whole lines, each with its replica where there are several."""

    is_prefixed: bool
    _known: dict[str, str] = field(default_factory=dict)

    def write(self, source: str, data: bytes) -> None:
        """Complete lines of one replica."""
        if self.is_prefixed:
            prefix = self._prefix(source)
            data = b"".join(prefix + line for line in data.splitlines(keepends=True))
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _prefix(self, source: str) -> bytes:
        if source not in self._known:
            text = f"[{source}]"
            if sys.stdout.isatty():
                text = click.style(text, fg=_COLOURS[len(self._known) % len(_COLOURS)])
            self._known[source] = f"{text} "
        return self._known[source].encode()


class Lines:
    """Cuts one replica's bytes into lines, so that those of several never mix."""

    def __init__(self, show: Printer, source: str) -> None:
        self._show = show
        self._source = source
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """More of the log."""
        whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if newline:
            self._show.write(self._source, whole + newline)

    def end(self) -> None:
        """The log is over; an unfinished last line is finished."""
        if self._rest:
            self._show.write(self._source, self._rest + b"\n")
            self._rest = b""
