"""Jobs as lines of a table, for all commands that list some."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainyard.cli.format import table
from trainyard.client.job import Job
from trainyard.schema.times import age, span


def job_table(jobs: Sequence[Job], now: datetime, *, everywhere: bool, wide: bool) -> str:
    """One line per job."""
    headers = ["NAME", "KIND", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    if everywhere:
        headers.insert(0, "NAMESPACE")
    if wide:
        headers += ["DURATION", "QUEUE", "REASON"]
    return table(headers, [_row(job, now, everywhere=everywhere, wide=wide) for job in jobs])


def _row(job: Job, now: datetime, *, everywhere: bool, wide: bool) -> list[object]:
    row: list[object] = [job.namespace] if everywhere else []
    row += [
        job.name,
        job.kind.kind,
        phase_text(job),
        running_text(job),
        job.restarts,
        age(job.metadata.get("creationTimestamp"), now),
    ]
    if wide:
        row += [
            span(job.status.get("startTime"), job.status.get("completionTime"), now),
            job.queue,
            reason(job),
        ]
    return row


def phase_text(job: Job) -> str:
    """The phase, or Terminating for a job that is being deleted."""
    return "Terminating" if job.is_deleting else job.phase


def running_text(job: Job) -> str:
    """How many replicas run, of how many: `3/4`; empty before any is known."""
    counts = job.aggregate
    return f"{counts.get('running', 0)}/{sum(counts.values())}" if counts else ""


def reason(job: Job) -> str:
    """One word on why the job is not running, where there is one."""
    running = job.condition("Running")
    word = str(running.get("reason") or "") if running.get("status") != "True" else ""
    return "" if word == "-" else word
