"""Prometheus metrics of an operator process. Imported only where they are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainyard.operator.controller import Controller
from trainyard.operator.records import JobKey

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """What a process counts, and what it reads from its controller when asked.

    `controller` returns the controller at work, or None on a standby.
    """

    def __init__(self, controller: Callable[[], Controller | None]) -> None:
        self.registry = CollectorRegistry()
        self._passes = Counter(
            "trainyard_passes",
            "Passes over jobs, by how they ended.",
            ["job_kind", "result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "trainyard_pass_seconds",
            "Time that a pass took, requests included.",
            ["job_kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_State(controller))

    def passed(self, key: JobKey, result: str, seconds: float) -> None:
        """Count one pass."""
        self._passes.labels(key.kind, result).inc()
        self._seconds.labels(key.kind).observe(seconds)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class _State(Collector):
    """Gauges that are read from the cache instead of being kept up to date."""

    def __init__(self, controller: Callable[[], Controller | None]) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        controller = self._controller()
        leader = GaugeMetricFamily("trainyard_leader", "Whether this process does the work.")
        leader.add_metric([], 0.0 if controller is None else 1.0)
        yield leader
        if controller is None:
            return
        depth = GaugeMetricFamily("trainyard_queue_depth", "Jobs that wait for a pass.")
        depth.add_metric([], float(len(controller.queue)))
        yield depth
        phases = GaugeMetricFamily(
            "trainyard_job_phase",
            "1 for the phase that each job is in.",
            labels=["job_kind", "job_name", "job_uid", "namespace", "phase"],
        )
        for store in controller.jobs.values():
            for job in store:
                if not job.kind.is_job:
                    continue
                phase = (job.status or {}).get("phase") or "Pending"
                labels = [job.kind.kind, job.name, job.uid, job.namespace, phase]
                phases.add_metric(labels, 1.0)
        yield phases
