"""Events: stored in the shape of core v1, shown in that of events.k8s.io/v1 too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainyard.embedded.clock import age
from trainyard.embedded.resources.printer_columns import NAME, Column, at
from trainyard.embedded.resources.resource import Object, Served
from trainyard.kube.resources import EVENTS, Resource
from trainyard.schema.problems import Problem
from trainyard.schema.rules.record_rules import event

_MOVED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion")


class _Events(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        return event(obj)

    def is_rarely_read(self, obj: Object) -> bool:
        return True

    def selected(self, obj: Object, path: tuple[str, ...]) -> Any:
        value = super().selected(obj, path)
        return value.get("component", "") if path == ("source",) and value is not None else value


class _NewEvents(Served):
    def schema(self) -> Object:
        described = f"{self.kind} of {self.resource.api_version}"
        open_ = {"x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "description": described, **open_}

    def to_view(self, obj: Object) -> Object:
        return _move(obj, dict(_MOVED), self.resource.api_version)

    def from_view(self, obj: Object) -> Object:
        return _move(obj, {new: old for old, new in _MOVED}, EVENTS.api_version)


def _move(event: Object, names: dict[str, str], api_version: str) -> Object:
    moved = {names.get(key, key): value for key, value in event.items()}
    moved["apiVersion"], moved["kind"] = api_version, EVENTS.kind
    return moved


def _object(event: Object) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _age(event: Object) -> str:
    last = (
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return age(last)


def _source(event: Object) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    return str(source.get("component") or event.get("reportingComponent") or "")


_COLUMNS = (
    Column("Last Seen", _age),
    Column("Type", at("type", "")),
    Column("Reason", at("reason", "")),
    Column("Object", _object),
    Column("Subobject", at("involvedObject.fieldPath", ""), priority=1),
    Column("Source", _source, priority=1),
    Column("Message", lambda event: str(event.get("message") or event.get("note") or "").strip()),
    Column("Count", at("count", 1), priority=1, type="integer"),
    Column("Name", NAME.cell, format="name", priority=1),
)
_UNSET = {"involvedObject": {}, "source": {}, "reportingComponent": ""}

SERVED = (
    _Events(
        EVENTS,
        order=80,
        definition="Event",
        unset=_UNSET,
        created_by_update=True,
        short_names=("ev",),
        printer_columns=_COLUMNS,
        selectable=frozenset(
            {f"involvedObject.{name}" for name in (*_REFERENCE, "resourceVersion", "fieldPath")}
            | {"reason", "reportingComponent", "source", "type"}
        ),
    ),
    _NewEvents(
        Resource("events.k8s.io", "v1", "events", "Event"),
        order=110,
        definition="Event",
        unset=_UNSET,
        short_names=("ev",),
        printer_columns=_COLUMNS,
        selectable=frozenset(
            {f"regarding.{name}" for name in _REFERENCE} | {"reason", "type", "reportingController"}
        ),
        view_of=EVENTS.full_name,
    ),
)
