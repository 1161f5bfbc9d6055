"""events.k8s.io/v1, the newer shape of the very same events that core v1 stores."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_MOVED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)


def to_events_v1(event: Object) -> Object:
    """A stored core event in the shape of events.k8s.io/v1."""
    return _move(event, dict(_MOVED), "events.k8s.io/v1")


def from_events_v1(event: Object) -> Object:
    """The inverse of `to_events_v1`."""
    return _move(event, {new: old for old, new in _MOVED}, "v1")


def _move(event: Object, names: dict[str, str], api_version: str) -> Object:
    moved = {names.get(key, key): value for key, value in event.items()}
    moved["apiVersion"], moved["kind"] = api_version, "Event"
    return moved
