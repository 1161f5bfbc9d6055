"""Hooks by which a controller reports what it does; `OperatorMetrics` counts it."""

from __future__ import annotations

from trainyard.kube.resources import Resource
from trainyard.lifecycle.actions import Plan
from trainyard.operator.reconcile.job_records import JobKey, JobRecord


class Instrumentation:
    """Does nothing; a subclass overrides what it counts.

    A hook must not raise or wait. Hooks are called only after the server has confirmed a write.
    """

    def reconcile_finished(self, key: JobKey, result: str, seconds: float) -> None:
        """A reconcile has ended after so many seconds, requests included."""

    def queue_waited(self, seconds: float) -> None:
        """A job that was due waited so many seconds for its reconcile."""

    def status_stored(self, before: JobRecord, after: JobRecord, plan: Plan) -> None:
        """A status was written; `after` is the job as stored."""

    def object_created(self, job: JobRecord, resource: Resource) -> None:
        """An object of the job was created."""

    def watch_ended(self, resource: Resource, why: str) -> None:
        """A watch has to be opened again: it `ended` normally, `expired`, was `broken`, or was
        `refused` by the server."""

    def event_lost(self, why: str) -> None:
        """An event will never be stored: too many were waiting (`overflow`), or the server did not
        accept it (`refused`)."""
