"""Leases and Events, which controllers write."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.schema.problems import Problem, error
from trainyard.schema.rules.common_rules import MOST_INT32, Object, bounds, required


def lease(obj: Object) -> Iterator[Problem]:
    """Problems of a Lease."""
    spec, path = obj.get("spec") or {}, ("spec",)
    yield from bounds(spec, path, "leaseDurationSeconds", 1, MOST_INT32)
    yield from bounds(spec, path, "leaseTransitions", 0, MOST_INT32)


def event(obj: Object) -> Iterator[Problem]:
    """Problems of an Event, which lies beside the object that it is about."""
    about, own = obj.get("involvedObject") or {}, obj["metadata"].get("namespace")
    namespace = about.get("namespace") or ""
    # What lies in no namespace has its events in the first one.
    if obj.get("eventTime"):
        yield from required(obj, (), "reportingComponent", "reportingInstance", "action", "reason")
    if namespace != own and not (not namespace and own == "default"):
        path = ("involvedObject", "namespace")
        yield error(path, f"must be the event's own namespace, {own!r}, is {namespace!r}")
