"""What a job's status tells of its viewer: whether it can be used, and where."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.shared.viewer import ViewerCondition, ViewerPhase, ViewerReason
from trainyard.kinds.shared.workload import Dependent, Workload
from trainyard.kube.object_conditions import find_condition
from trainyard.kube.resources import Resource
from trainyard.lifecycle import texts
from trainyard.lifecycle.observed import Observed, Owned
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.status.status_builder import StatusBuilder

_WARNING_REASONS = (ViewerReason.NOT_SERVED, ViewerReason.FETCH_FAILED)


def report_viewers(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Put into the status how the viewers stand that the job has."""
    status.fields |= viewer_status_fields(context.workload, context.observed)
    return NOTHING


def viewer_status_fields(workload: Workload, observed: Observed) -> dict[str, Any]:
    """The fields of status about those that a job has."""
    return {
        dependent.status_field: _link(workload, dependent, observed)
        for dependent in workload.dependents
        if dependent.status_field
    }


def _link(workload: Workload, dependent: Dependent, observed: Observed) -> dict[str, Any]:
    resource, name = dependent.resource, dependent.name
    owned = (o for o in observed.owned if o.resource == resource and o.name == name)
    found = next(owned, None)
    status: dict[str, Any] = {
        "action": "NOP" if found else "Create",
        "dependent": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": name,
            "namespace": workload.namespace,
            "uid": found.uid if found else "",
        },
        "name": dependent.status_field,
    }
    if found is not None and found.status.get("phase") == ViewerPhase.RUNNING:
        return status | _link_fields(f"{resource.kind} [{name}] is ready", found, ready=True)
    if found is None:
        why = _refused(resource, name, observed)
    else:
        why = find_condition(found.status, ViewerCondition.READY).get("message") or ""
    note = f"{resource.kind} [{name}] is not ready" + (f": {why}" if why else "")
    fields = _link_fields(note, found, ready=False)
    return status | fields | ({"type": "Warning"} if why and found is None else {})


def _refused(resource: Resource, name: str, observed: Observed) -> str:
    """Why it cannot be created; it holds up nothing of its job, so nothing else may tell."""
    for conflict in observed.conflicts:
        if (conflict.resource, conflict.name) == (resource, name):
            return texts.name_taken_for_job(conflict)
    for refusal in observed.refusals:
        if (refusal.resource, refusal.name) == (resource, name):
            return texts.refused(refusal)
    return ""


def _link_fields(note: str, found: Owned | None, *, ready: bool) -> dict[str, Any]:
    logs = find_condition(found.status if found else None, ViewerCondition.LOGS_SERVED)
    if logs.get("status") == "False":
        note += f"; {logs.get('message', '')}"
    failed = found is not None and found.status.get("phase") == ViewerPhase.FAILED
    url = found.status.get("url") if found else None
    fields = {
        "note": note,
        "ready": ready,
        "reason": "DependentReady" if ready else "DependentNotReady",
        "type": "Warning" if failed or logs.get("reason") in _WARNING_REASONS else "Normal",
    }
    return fields | ({"url": url} if url else {})
