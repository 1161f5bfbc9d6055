"""Options that a write carries in its query or, for deletions, in its body."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.local.apiserver import formats
from trainyard.local.apiserver.http import Request
from trainyard.local.failures import bad_request


def is_dry_run(request: Request) -> bool:
    value = request.query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad_request(f"invalid dryRun {value!r}: only All is supported")
    return value == "All"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """DeleteOptions of meta/v1."""

    grace_seconds: int | None
    uid: str | None
    resource_version: str | None
    propagation: str | None
    dry_run: bool

    @classmethod
    def of(cls, request: Request) -> DeleteOptions:
        """From the body, else from the query."""
        body = formats.body_object(request)[0] if request.body else {}
        query = request.query
        grace = body.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds", "").isdigit():
            grace = int(query["gracePeriodSeconds"])
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
        if propagation is None and (
            body.get("orphanDependents") or request.flag("orphanDependents")
        ):
            propagation = "Orphan"
        if propagation not in (None, "Background", "Foreground", "Orphan"):
            raise bad_request(f"invalid propagationPolicy {propagation!r}")
        wanted = body.get("preconditions") or {}
        return cls(
            grace,
            wanted.get("uid"),
            wanted.get("resourceVersion"),
            propagation,
            bool(body.get("dryRun")) or is_dry_run(request),
        )
