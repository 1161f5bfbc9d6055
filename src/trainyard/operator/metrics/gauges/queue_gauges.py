"""How many jobs wait for a reconcile, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from trainyard.operator.metrics.gauges import MetricsSnapshot


def collect(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Length and age of the work queue."""
    queue = snapshot.controller.queue
    yield GaugeMetricFamily("trainyard_queue_depth", "Jobs that are due for a pass.", len(queue))
    yield GaugeMetricFamily(
        "trainyard_queue_oldest_seconds",
        "For how long the job has been due that has waited the longest.",
        queue.oldest_seconds,
    )
