"""`trainyard logs`: what the replicas of a job write, together or one by one."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import field
from math import ceil
from typing import Any

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.job_logs import LogRequest, Unfinished, texts
from trainyard.api.views import Job
from trainyard.cli.failure_card_text import print_failure
from trainyard.cli.job_options import container_option, on_job
from trainyard.schema import duration
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidDuration

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")

_LAST_BYTES = 64


@on_job
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-r", "--replica", default="", metavar="NAME", help="Only this one, such as worker-0."
)
@container_option
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only what this rank wrote, of the lines that are wanted otherwise.",
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines."
)
@click.option(
    "--since",
    "since_seconds",
    callback=lambda _context, _parameter, text: parse_seconds(text),
    metavar="DURATION",
    help="Only lines newer than so long ago: 30s, 5m, 2h.",
)
@click.option(
    "-p",
    "--previous",
    is_flag=True,
    help="Of the attempt before. On the embedded cluster logs outlive their pods; elsewhere "
    "only restarts inside a pod have an earlier log.",
)
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
async def command(client: AsyncClient, job: Job, **wanted: Any) -> None:
    """Print what the replicas of a job write.

    Lines of several replicas begin with the replica's name, those of several ranks in one log with
    the rank: [rank3]. With -f, replicas that are created
    later join in, and the command ends with the job.
    """
    show: LogPrinter | None = None

    def grow(line: Unfinished) -> None:
        if show is not None:
            show.grow(line)

    def note(text: str) -> None:
        click.echo(text, err=True)

    async with contextlib.aclosing(
        client.log_blocks(job, LogRequest(**wanted), note, grow)
    ) as blocks:
        async for block in blocks:
            show = show or LogPrinter(is_prefixed=block.is_one_of_several)
            show.write(block.replica, block.data)
    if wanted["follow"]:
        await print_failure(client, job)


def parse_seconds(text: str | None) -> int | None:
    """Return a duration such as `5m` in whole seconds, at least one; raises BadParameter."""
    if text is None:
        return None
    try:
        return max(1, ceil(duration.parse(text).total_seconds()))
    except InvalidDuration as error:
        raise click.BadParameter(str(error)) from error


@dataclass(slots=True)
class LogPrinter:
    """Writes whole lines, each with its replica where there are several.

    On a terminal a line of the only replica is written while it grows, with its carriage returns,
    and of several replicas each line as it looks in the end.
    """

    is_prefixed: bool
    is_terminal: bool = field(default_factory=sys.stdout.isatty)
    _prefixes: dict[str, str] = field(default_factory=dict)
    _written: int = 0
    """How many bytes of the unfinished line are on the terminal."""
    _last: bytes = b""
    """Their end, by which the place is found when a stream is read anew."""

    def write(self, source: str, lines: bytes) -> None:
        """Print whole lines of one replica."""
        if self.is_prefixed:
            prefix = self._prefix(source)
            each = _shown(lines) if self.is_terminal else lines.split(b"\n")[:-1]
            lines = b"".join(prefix + line + b"\n" for line in each)
        elif self._written:
            begun = lines[max(0, self._written - len(self._last)) : self._written]
            is_other = begun != self._last or b"\n" in lines[: self._written]
            lines = b"\n" + lines if is_other else lines[self._written :]
            self._written, self._last = 0, b""
        self._print(lines)

    def grow(self, line: Unfinished) -> None:
        """Print what is new of the line that the only replica is writing."""
        if self.is_prefixed or not self.is_terminal:
            return
        known = max(0, self._written - len(self._last))
        text = line(known)
        if not text.startswith(self._last):
            return  # the log is read anew, and not yet at what is written
        if new := text[len(self._last) :]:
            self._written += len(new)
            self._last = text[-_LAST_BYTES:]
            self._print(new)

    def _print(self, text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()

    def _prefix(self, source: str) -> bytes:
        if source not in self._prefixes:
            text = f"[{source}]"
            if self.is_terminal:
                text = click.style(text, fg=_COLOURS[len(self._prefixes) % len(_COLOURS)])
            self._prefixes[source] = f"{text} "
        return self._prefixes[source].encode()


def _shown(lines: bytes) -> list[bytes]:
    return [text.encode() for text in texts(lines)]
