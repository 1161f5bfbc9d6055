"""What `run` shows on a terminal: log lines that scroll above a live table of the replicas.

Imported only on a terminal: rich costs more than a short job.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import strip_control_codes
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from trainyard.cli.screens import prefix
from trainyard.client.job import Job

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan")
_PHASES = {"Running": "green", "Succeeded": "green", "Failed": "red", "Pending": "yellow"}
_MAX_ROWS = 16


class _Lines:
    """Lines of a log with what each begins with; not wrapped and not measured, which takes long."""

    def __init__(self, begin: Segment, lines: Sequence[str]) -> None:
        self._begin = begin
        self._lines = lines

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield self._begin
            if "\x1b" in line:
                yield from Text.from_ansi(line, end="").render(console)
                yield Segment.line()
            else:
                yield Segment(strip_control_codes(line) + "\n")


class LiveScreen:
    """Scrolls lines above the table, which is redrawn a few times a second."""

    def __init__(self, *, names_jobs: bool) -> None:
        """`names_jobs`: there are several jobs, so that a replica alone does not say which."""
        self._console = Console(highlight=False, soft_wrap=True)
        self._names_jobs = names_jobs
        self._jobs: dict[str, Job] = {}
        self._live = Live(
            console=self._console, get_renderable=self._table, refresh_per_second=5, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def job_changed(self, job: Job) -> None:
        self._jobs[job.uid] = job  # drawn by the clock

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        name = prefix(job, source, names_jobs=self._names_jobs)
        color = _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
        begin = Segment(f"[{name}] ", Style.parse(color))
        # At once: the table is drawn anew below whatever is printed.
        self._console.print(_Lines(begin, lines), soft_wrap=True)

    def warning(self, about: str, message: str) -> None:
        text = message if about in message else f"{about}: {message}"
        self._console.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _table(self) -> RenderableType:
        return Group(*(self._job_table(job) for job in self._jobs.values()))

    def _job_table(self, job: Job) -> Table:
        seconds = job.seconds or 0.0
        title = f"{job.name}  {job.phase}  {seconds:.0f} s  restarts {job.restarts}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in ("REPLICA", "PHASE", "EXIT", "MESSAGE"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        pods = job.ordered_pods()
        for pod in pods[:_MAX_ROWS]:
            failed = pod.failed_container
            exit_code = "" if failed is None else str(failed.exit_code)
            style = _PHASES.get(pod.phase, "")
            table.add_row(pod.replica, Text(pod.phase, style=style), exit_code, pod.message)
        if len(pods) > _MAX_ROWS:
            table.add_row(f"… {len(pods) - _MAX_ROWS} more", "", "", "")
        table.caption = time.strftime("%H:%M:%S")
        table.caption_justify = "left"
        return table
