"""Gauges that are computed when somebody scrapes, one file for each group of them.

A module of this folder has `collect(snapshot)`, which yields metric families. To add a metric is to
add its file; nothing else lists them. It must not wait, and must keep its series bounded: no UID is
a label, and the name of a job only where `snapshot.has_job_series`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import NamedTuple

from prometheus_client.core import Metric

from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.job_records import JobRecord


class MetricsSnapshot(NamedTuple):
    """What gauges are computed from."""

    controller: Controller
    """The controller that works now."""
    now: datetime
    has_job_series: bool
    """Whether each job may have series of its own (`--job-metrics`, decision 191)."""

    def jobs(self) -> Iterator[JobRecord]:
        """All jobs that this operator reconciles, without viewers."""
        for cache in self.controller.jobs.values():
            for job in cache:
                if job.kind.is_job and self.controller.looks_after(job.namespace):
                    yield job


def collect_gauges(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """The metric families of all modules of this folder."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        yield from import_module(f"{__name__}.{module}").collect(snapshot)
