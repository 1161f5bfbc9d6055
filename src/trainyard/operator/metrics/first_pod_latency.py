"""Remembers since when jobs wait for their first pod, for a histogram of that time."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.schema.times import parse

MAX_JOBS = 10_000


class FirstPodLatency:
    """Creation times of jobs without a pod; beyond `MAX_JOBS`, the oldest are forgotten."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, datetime] = OrderedDict()

    def start(self, job: JobRecord) -> None:
        """The job was accepted and has no pod yet."""
        since = parse(job.raw["metadata"].get("creationTimestamp"))
        if since is not None:
            self._since[job.uid] = since
            if len(self._since) > MAX_JOBS:
                self._since.popitem(last=False)

    def finish(self, job: JobRecord) -> datetime | None:
        """The job has a pod; returns when it was created, if it was waiting for its first."""
        return self._since.pop(job.uid, None)
