"""What a run shows in a notebook: a table that is drawn anew in its place, and lines below it."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from trainyard.api.event_loop_thread import Relay
from trainyard.api.run_output import PlainScreen
from trainyard.client.job_follower import Screen
from trainyard.client.job_view import Job

_SECONDS = 0.3
"""Between two drawings, each of which is a message that the notebook keeps."""


def new_screen(*, names_jobs: bool) -> Screen:
    """The one for where this runs."""
    if is_notebook():
        return NotebookScreen(names_jobs=names_jobs)
    return PlainScreen(names_jobs=names_jobs)


def chosen(screen: Screen | None, *, names_jobs: bool) -> Screen:
    """The user's, or the one for where this runs."""
    if isinstance(screen, Relay):
        screen.given = screen.given or new_screen(names_jobs=names_jobs)
    return screen or new_screen(names_jobs=names_jobs)


def is_notebook() -> bool:
    """Whether what is displayed goes to a notebook: IPython has a kernel then."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookScreen(PlainScreen):
    """Lines as everywhere, and instead of phases a table of the replicas above them."""

    def __init__(self, *, names_jobs: bool) -> None:
        """`names_jobs`: there are several jobs, so that a replica alone does not say which."""
        super().__init__(names_jobs=names_jobs)
        self._jobs: dict[str, Job] = {}
        self._handle: Any = None
        self._drawn = 0.0

    def __exit__(self, *exception: object) -> None:
        self._draw()
        super().__exit__(*exception)

    def job_changed(self, job: Job) -> None:
        is_news = self._jobs.get(job.uid) is None or job.is_over
        self._jobs[job.uid] = job
        if is_news or time.monotonic() - self._drawn > _SECONDS:
            self._draw()

    def _draw(self) -> None:
        display = import_module("IPython.display")  # is there, as the notebook is
        self._drawn = time.monotonic()
        shown = display.HTML("".join(job._repr_html_() for job in self._jobs.values()))
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)
        else:
            self._handle.update(shown)
