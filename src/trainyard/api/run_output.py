"""What `run` prints for pipes and log files, and its last words: how each job ended.

Why a job failed is shown by the failure card (`cli/failure_card_text.py`); the summary replaces it
where the cluster has gone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, TextIO

from trainyard.client.job_view import Job
from trainyard.client.metrics_client import Place as Place
from trainyard.client.metrics_client import Used as Used
from trainyard.schema.errors import TrainyardError


class PlainScreen:
    """Prefixed log lines and every change of a job's phase."""

    def __init__(self, *, names_jobs: bool, out: TextIO | None = None) -> None:
        """`names_jobs`: there are several jobs, so that a replica alone does not say which."""
        self._out = out or sys.stdout
        self._names_jobs = names_jobs
        self._phases: dict[str, str] = {}
        self._restarts: dict[str, int] = {}
        self._ends: list[str] = []
        """What is to be said below the last lines of logs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        while self._ends:
            self._print(self._ends.pop(0))
        self._out.flush()

    def job_changed(self, job: Job) -> None:
        if job.restarts > self._restarts.get(job.uid, 0):
            self._restarts[job.uid] = job.restarts
            self._print(f"{job.name}: restarts: {job.restarts}")
        if self._phases.get(job.uid, "Pending") != job.phase:
            self._phases[job.uid] = job.phase
            if job.is_over:  # its replicas may still write, and be counted as they were before
                self._ends.append(f"{job.name}: {job.phase}")
                if self._names_jobs:  # others go on
                    self._print(self._ends.pop())
                return
            counts = ", ".join(f"{count} {name}" for name, count in job.aggregate.items() if count)
            self._print(f"{job.name}: {job.phase}" + (f" ({counts})" if counts else ""))

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        begin = f"[{prefix(job, source, names_jobs=self._names_jobs)}] "
        self._print(begin + f"\n{begin}".join(lines))

    def line_grew(self, job: Job, source: str, text: str) -> None:
        """Nothing: what is printed cannot be overwritten."""

    def usage_changed(self, used: Mapping[Place, Used]) -> None:
        """Nothing, for the same reason."""

    @property
    def is_live(self) -> bool:
        return False

    def warning(self, about: str, message: str) -> None:
        self._print(
            f"warning: {about}: {message}" if about not in message else f"warning: {message}"
        )

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TrainyardError(f"cannot write the output: {error.strerror}") from error


def prefix(job: Job, source: str, *, names_jobs: bool) -> str:
    """The replica, after its job's name where there are several jobs."""
    return f"{job.name}/{source}" if names_jobs else source


def summary(job: Job, logs: Path | None, *, seconds: float) -> Iterator[str]:
    """The summary of one job; `logs` is the folder of the pods' logs, where they are on disk."""
    restarts = f"{job.restarts} restart{'' if job.restarts == 1 else 's'}"
    if job.never_fits:
        yield f"{job.kind.kind} {job.name} cannot run here: {job.never_fits}"
        return
    phase = "deleted" if job.is_deleted else job.phase
    yield f"{job.kind.kind} {job.name}: {phase} after {seconds:.1f} s, {restarts}"
    if job.phase == "Failed" and job.failure:
        yield f"  {job.failure}"
    if logs is not None:
        yield f"  logs: {logs}"


def viewer_summary(job: Job, *, keeps: bool) -> str:
    """Of a job with a TensorBoard; `keeps`: the job, and it, stay after the command."""
    if not keeps:
        return "  TensorBoard ends with this command; with --keep it stays"
    if job.viewer.get("ready"):
        return f"  TensorBoard: {job.viewer_url}"
    return f"  TensorBoard is not ready yet: trainyard show {job.name}"
