"""Counts what the wall time of jobs that have ended was spent on."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from trainyard.kinds.shared.goodput.goodput_parts import seconds_by_part
from trainyard.operator.reconcile.job_records import JobRecord


def goodput_counter(registry: CollectorRegistry) -> Callable[[str, JobRecord], None]:
    """Register the counter; returns what counts a job of a kind that has ended."""
    spent = Counter(
        "trainyard_job_time_seconds",
        "Wall time of jobs that have ended, by what it was spent on.",
        ["job_kind", "part"],
        registry=registry,
    )

    def count(kind: str, job: JobRecord) -> None:
        for part, seconds in seconds_by_part(job.status):
            spent.labels(kind, part).inc(seconds)

    return count
