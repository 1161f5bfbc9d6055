"""What a controller tells of its work while it does it, to whoever counts."""

from __future__ import annotations

from trainyard.kube.resources import Resource
from trainyard.lifecycle.actions import Plan
from trainyard.operator.reconcile.job_records import JobKey, JobRecord


class Instrumentation:
    """Takes no notice of anything; one that counts overrides what it counts.

    Nothing here may fail or wait, and nothing is told before the server has confirmed it.
    """

    def reconcile_finished(self, key: JobKey, result: str, seconds: float) -> None:
        """A pass has ended; `seconds` is the time it took, requests included."""

    def queue_waited(self, seconds: float) -> None:
        """A job that was due waited this long for its pass."""

    def status_stored(self, before: JobRecord, after: JobRecord, plan: Plan) -> None:
        """A status was written: `after` is the job as it is stored now."""

    def object_created(self, job: JobRecord, resource: Resource) -> None:
        """An object of the job was created."""

    def watch_ended(self, resource: Resource, why: str) -> None:
        """A watch has to be opened again: it was `ended` in order, `expired`, `broken`, or the
        server `refused` it."""

    def event_lost(self, why: str) -> None:
        """An event will never be stored: too many waited (`overflow`), or the server did not take
        it (`refused`)."""
