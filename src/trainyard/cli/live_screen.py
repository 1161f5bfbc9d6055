"""Shows a run on a terminal: log lines scroll above a live table of the replicas.

Import it only on a terminal: importing rich takes longer than a short job.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import strip_control_codes
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from trainyard.api.run_output import Place, Used, prefix
from trainyard.api.views import Job, PodView
from trainyard.cli.replica_table import Row, layout_lines, strip_control

_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan")
_MIN_JOB_LINES = 4
"""With fewer lines a job is shown by its title alone."""

_REDRAWN = "\x1b[A"
"""Ends a line from which the cursor goes up again: a lower one of several progress bars."""


class _Lines:
    """Lines of a log with their prefix; neither wrapped nor measured, which would take long."""

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


class ResizableLines:
    """Lines that are made anew for the size that the terminal has when they are drawn."""

    def __init__(self, lines: Callable[[int, int], list[Text]]) -> None:
        """`lines` takes a width in cells and a height, and keeps to both."""
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One line less than there are: the cursor stands below the last one.
        lines = self._lines(options.max_width, max(1, console.height - 1))
        yield Text("\n", no_wrap=True, overflow="crop").join(lines)


class LiveScreen:
    """Scrolls log lines above the table, which is redrawn five times a second."""

    def __init__(self, *, names_jobs: bool, console: Console | None = None) -> None:
        """`names_jobs`: there are several jobs, so that a replica alone does not say which."""
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._names_jobs = names_jobs
        self._jobs: dict[str, Job] = {}
        self._growing: dict[tuple[str, str], str] = {}
        self._used: Mapping[Place, Used] = {}
        self._live = Live(
            ResizableLines(self.lines), console=self._console, refresh_per_second=5, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def job_changed(self, job: Job) -> None:
        self._jobs[job.uid] = job  # drawn by the clock

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        drawn = [line for line in lines if line.endswith(_REDRAWN)]
        lines = [line for line in lines if not line.endswith(_REDRAWN)]
        self._growing.pop((job.uid, _replica(source)), None)
        if drawn:
            self.line_grew(job, source, drawn[-1])
        if not lines:
            return
        name = prefix(job, source, names_jobs=self._names_jobs)
        color = _COLORS[zlib.crc32(name.encode()) % len(_COLORS)]
        begin = Segment(f"[{name}] ", Style.parse(color))
        # At once: the table is drawn anew below whatever is printed.
        self._console.print(_Lines(begin, lines), soft_wrap=True)

    def line_grew(self, job: Job, source: str, text: str) -> None:
        self._growing[job.uid, _replica(source)] = text

    def usage_changed(self, used: Mapping[Place, Used]) -> None:
        self._used = used

    def warning(self, about: str, message: str) -> None:
        text = message if about in message else f"{about}: {message}"
        self._console.print(Text(f"warning: {text}", style="yellow"), soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    @property
    def is_live(self) -> bool:
        return True

    def lines(self, width: int, height: int) -> list[Text]:
        """The table on a terminal of this size, in cells and lines; no line is longer."""
        jobs = list(self._jobs.values())
        lines: list[Text] = []
        for place, job in enumerate(jobs):
            share = (height - len(lines)) // (len(jobs) - place)
            if share < 1:
                break
            title = list(_title(job, width))[:share]
            lines += title
            if share >= _MIN_JOB_LINES or len(jobs) == 1:
                lines += layout_lines(self._rows(job), width, share - len(title))
        return lines[:height]

    def _rows(self, job: Job) -> list[Row]:
        return [
            Row(
                pod.replica,
                pod.phase,
                self._figures(pod),
                pod.message or self._growing.get((job.uid, pod.replica), ""),
            )
            for pod in job.ordered_pods()
        ]

    def _figures(self, pod: PodView) -> dict[str, str]:
        if failed := pod.failed_container:
            return {"exit": str(failed.exit_code)}
        used = self._used.get((pod.namespace, pod.name)) if pod.phase == "Running" else None
        return used.figures() if used else {}


def _title(job: Job, width: int) -> Iterator[Text]:
    name, state = job.name, f"{job.phase}  {job.seconds or 0.0:.0f} s  restarts {job.restarts}"
    if message := job.progress.get("message"):
        state += f"  {strip_control(str(message))}"
    for text in (
        [f"{name}  {state}"] if cell_len(name) + 2 + cell_len(state) <= width else [name, state]
    ):
        line = Text(strip_control(text), style="italic")
        line.truncate(width, overflow="ellipsis")
        yield line


def _replica(source: str) -> str:
    return source.partition("/")[0]
