"""What `run` prints: plain lines, one thing after the other, for pipes and log files."""

from __future__ import annotations

import sys
from typing import Self, TextIO

from trainyard.client.job import Job
from trainyard.schema.errors import TrainyardError


class OutputError(TrainyardError):
    """What `run` prints cannot be written."""


class PlainScreen:
    """Prefixed log lines and every change of a job's phase."""

    def __init__(self, *, names_jobs: bool, out: TextIO | None = None) -> None:
        """`names_jobs`: there are several jobs, so that a replica alone does not say which."""
        self._out = out or sys.stdout
        self._names_jobs = names_jobs
        self._phases: dict[str, str] = {}
        self._restarts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._out.flush()

    def job_changed(self, job: Job) -> None:
        """Print the phase when it is a new one, and restarts."""
        if job.restarts > self._restarts.get(job.uid, 0):
            self._restarts[job.uid] = job.restarts
            self._print(f"{job.name}: restarts: {job.restarts}")
        if self._phases.get(job.uid, "Pending") != job.phase:
            self._phases[job.uid] = job.phase
            counts = ", ".join(f"{count} {name}" for name, count in job.aggregate.items() if count)
            self._print(f"{job.name}: {job.phase}" + (f" ({counts})" if counts else ""))

    def log_line(self, job: Job, source: str, line: str) -> None:
        """Print a replica's line."""
        self._print(f"[{prefix(job, source, names_jobs=self._names_jobs)}] {line}")

    def warning(self, about: str, message: str) -> None:
        """Print a warning."""
        self._print(
            f"warning: {about}: {message}" if about not in message else f"warning: {message}"
        )

    def note(self, text: str) -> None:
        """Print something about the run itself."""
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"cannot write the output: {error.strerror}") from error


def prefix(job: Job, source: str, *, names_jobs: bool) -> str:
    """The replica, after its job's name where there are several jobs."""
    return f"{job.name}/{source}" if names_jobs else source
