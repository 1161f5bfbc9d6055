"""When Kubernetes Events happened, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainyard.schema.times import parse


def event_time(event: Mapping[str, Any]) -> datetime:
    """When an event happened last."""
    metadata = event.get("metadata") or {}
    moment = (
        event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp")
    )
    return parse(moment) or datetime.min.replace(tzinfo=UTC)


def event_order(event: Mapping[str, Any]) -> tuple[datetime, int]:
    """A sort key: by the second, and within it by when they were written.

    Kubelets tell whole seconds and the controller fractions; by time alone a container would
    start before its pod was created.
    """
    version = str((event.get("metadata") or {}).get("resourceVersion") or "")
    return event_time(event).replace(microsecond=0), int(version) if version.isdigit() else 0
