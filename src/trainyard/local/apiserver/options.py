"""Options that a write carries in its query or, for deletions, in its body."""

from __future__ import annotations

from trainyard.local.apiserver import formats
from trainyard.local.apiserver.http import Request
from trainyard.local.failures import bad_request
from trainyard.local.objects import Deletion


def is_dry_run(request: Request) -> bool:
    """Whether nothing is to be stored."""
    value = request.query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad_request(f"invalid dryRun {value!r}: only All is supported")
    return value == "All"


def deletion(request: Request) -> Deletion:
    """How an object is to be deleted: as the body says (DeleteOptions), else the query."""
    body = formats.body_object(request)[0] if request.body else {}
    query = request.query
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds", "").isdigit():
        grace = int(query["gracePeriodSeconds"])
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None and (body.get("orphanDependents") or request.flag("orphanDependents")):
        propagation = "Orphan"
    if propagation not in (None, "Background", "Foreground", "Orphan"):
        raise bad_request(f"invalid propagationPolicy {propagation!r}")
    wanted = body.get("preconditions") or {}
    return Deletion(
        grace,
        wanted.get("uid"),
        wanted.get("resourceVersion"),
        propagation,
        bool(body.get("dryRun")) or is_dry_run(request),
    )
