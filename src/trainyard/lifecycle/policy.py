"""What a policy is: one function, evaluated at fixed stages of a reconcile.

A policy answers with everything that follows from it at once: whether the job ends, when to look
again, and what to create. A time that it waits for therefore cannot be forgotten by its caller, and
no timed policy fires late. `policies.py` is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from trainyard.kinds.shared.workload import Manifest
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pod_reports import ReportedState
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.dataclass import dataclass


class Stage(Enum):
    """When a policy is evaluated.

    All policies of a stage are, in the order of the table; a verdict takes effect after the last of
    them, and the first one wins. Only policies of the first three stages may end the job.
    """

    START = "start"
    """Of a job that runs, before anything else is looked at."""
    REPORTS = "reports"
    """What pods report by themselves; nothing has restarted yet for what ended."""
    RESTARTS = "restarts"
    """It is decided what restarts (`ReconcileContext.restarts`), and nothing is done yet."""
    REPLICAS = "replicas"
    """The job goes on; the status does not yet say whether it runs."""
    RUNNING = "running"
    """The status says whether it runs, and since when."""
    END = "end"
    """The job ends in this reconcile; `internal.ended` says how."""
    FIELDS = "fields"
    """The status is complete but for fields of policies; that of an ended job as well."""
    WRITE = "write"
    """The status differs from the stored one, and will be written."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What follows from a policy; what it reports is in the StatusBuilder already."""

    verdict: Verdict | None = None
    """Ends the job."""
    wake_at: datetime | None = None
    """Reconcile again then, even if nothing changes."""
    context: ReconcileContext | None = None
    """With replicas that the policy has declared failed, or taken away; None: as it was."""
    evidence: tuple[Create, ...] = ()
    """Objects to create whatever else this reconcile comes to."""


NOTHING = PolicyResult()

Evaluate = Callable[[ReconcileContext, StatusBuilder], PolicyResult]
PodEdit = Callable[[Manifest], Manifest]


@dataclass(frozen=True, slots=True)
class PodReport:
    """A report by which pods tell a state, and ask what to do."""

    name: str
    """Of the field of a message that holds it, which never changes."""
    field: str
    """Of `PodReports`: by the pod's name, the last report."""
    decode: Callable[[Any, datetime], ReportedState]
    """From a message, which may be anything, and the time; raises ValueError, with the field."""
    instruct: Callable[[Mapping[str, Any], Pod], Mapping[str, Any]]
    """The answer to a pod, from the stored status of its job."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table. Everything but the function and its stages is optional."""

    name: str
    evaluate: Evaluate
    stages: tuple[Stage, ...]
    pod_edit: Callable[[Mapping[str, Any]], PodEdit | None] | None = None
    """How the status that is being built changes pods that are about to be created."""
    pod_report: PodReport | None = None
    """What pods report to it."""
    internal_fields: tuple[str, ...] = ()
    """Fields of `status.internal` that the policy owns."""
    parse_status: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Drops what the policy cannot read of its own fields in a stored status."""


def ends_job(judge: Callable[[ReconcileContext], Verdict | None]) -> Evaluate:
    """A policy that does nothing but end jobs."""
    return lambda context, _: PolicyResult(verdict=judge(context))
