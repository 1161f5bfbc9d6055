"""The progress of each job, by its name; only with `--job-metrics` (decision 191)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from trainyard.operator.metrics.gauges import MetricsSnapshot
from trainyard.operator.reconcile.job_records import JobRecord

_SERIES = (
    ("progress_ratio", "How much of each job is done, as its pods report.", "percentage", 0.01),
    ("step", "The step that each job has done last, as its pods report.", "step", 1.0),
    ("steps_per_second", "How fast each job is, of the last minute.", "stepsPerSecond", 1.0),
    (
        "collectives_per_second",
        "How many collectives a second, of the last minute, of each job that reports no step.",
        "perSecond",
        1.0,
    ),
)


def collect(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """One family for each number that jobs report."""
    if not snapshot.has_job_series:
        return
    reported = [(job, _progress(job)) for job in snapshot.jobs()]
    for name, text, field, factor in _SERIES:
        family = GaugeMetricFamily(
            f"trainyard_job_{name}", text, labels=["job_kind", "job_name", "job_namespace"]
        )
        for job, progress in reported:
            value = progress.get(field)
            if isinstance(value, int | float):
                family.add_metric([job.kind.kind, job.name, job.namespace], value * factor)
        yield family


def _progress(job: JobRecord) -> dict[str, Any]:
    found = (job.status or {}).get("progress")
    if not isinstance(found, dict):
        return {}
    counted = found.get("collectives")
    return {**counted, **found} if isinstance(counted, dict) else found
