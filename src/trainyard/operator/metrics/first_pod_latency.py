"""Jobs that have no pod yet, of which it is to be told how long that took."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.schema.times import parse

MAX_JOBS = 10_000


class FirstPodLatency:
    """When they were created; the oldest are forgotten where they are too many."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, datetime] = OrderedDict()

    def put(self, job: JobRecord) -> None:
        """It is to have a pod."""
        since = parse(job.raw["metadata"].get("creationTimestamp"))
        if since is not None:
            self._since[job.uid] = since
            if len(self._since) > MAX_JOBS:
                self._since.popitem(last=False)

    def take(self, job: JobRecord) -> datetime | None:
        """It has a pod; since when that was awaited, if it was."""
        return self._since.pop(job.uid, None)
