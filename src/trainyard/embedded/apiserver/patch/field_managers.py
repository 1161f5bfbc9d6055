"""Field ownership: how writes and server-side applies change `managedFields`.

Rules: https://kubernetes.io/docs/reference/using-api/server-side-apply/. Clients' writes are
recorded; writes of the cluster's own loops are not. An object without a record stays without one
until it is applied, and then its fields belong to `before-first-apply`, as in Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import orjson

from trainyard.embedded.api_errors import StatusCause, apply_conflict
from trainyard.embedded.apiserver.patch import field_sets, last_applied
from trainyard.embedded.apiserver.patch.field_sets import Fields, Path
from trainyard.embedded.clock import now_text
from trainyard.embedded.resources.resource import Object, Served
from trainyard.schema.dataclass import dataclass

APPLY, UPDATE = "Apply", "Update"
_BEFORE, _ANCIENT = "before-first-apply", "ancient-changes"
_KUBECTL = "kubectl"
MOST_UPDATERS = 10
"""Entries of plain writes; of more, the oldest are one."""


class Manager(NamedTuple):
    """Who writes, how (`Apply` or `Update`), and through which subresource."""

    name: str
    operation: str
    subresource: str = ""
    api_version: str = ""
    """Only of updates: an apply counts for all versions."""

    @classmethod
    def from_entry(cls, entry: Object) -> Manager:
        """The manager of an entry of `managedFields`."""
        operation = entry.get("operation", "")
        version = entry.get("apiVersion", "") if operation == UPDATE else ""
        return cls(entry.get("manager", ""), operation, entry.get("subresource", ""), version)

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.api_version else text


Entries = dict[Manager, Object]


@dataclass(frozen=True, slots=True)
class Update:
    """A write without apply: the fields that it changes belong to its manager alone."""

    manager: str
    served: Served
    subresource: str = ""

    def record(self, new: Object, old: Object | None) -> None:
        """Write the ownership of fields into `new`, which is about to replace `old`."""
        metadata = new["metadata"]
        entries = self._known(new, old)
        if not entries and old is not None:  # never recorded, or a client removed the record
            metadata.pop("managedFields", None)
            return
        is_status = self.subresource == "status"
        after = field_sets.owned_part(new, status=is_status)
        if old is not None:
            before = field_sets.owned_part(old, status=is_status)
            changed, removed = field_sets.compare(before, after, custom=self.served.custom)
        else:
            if self.served.created_with_status:
                after |= field_sets.owned_part(new, status=True)
            changed, removed = field_sets.compare(
                _empty(self.served), after, custom=self.served.custom
            )
        _transfer(entries, changed, removed)
        if changed:
            me = Manager(self.manager, UPDATE, self.subresource, new["apiVersion"])
            mine = entries.get(me, {}).get("fieldsV1", {})
            entries[me] = _entry(me, field_sets.union(mine, changed), new["apiVersion"])
            _limit_entries(entries)
        if entries:
            metadata["managedFields"] = _listed(entries)
        else:
            metadata.pop("managedFields", None)

    def _known(self, new: Object, old: Object | None) -> Entries:
        """The entries before the write; a client may have sent changed ones."""
        known = None if old is None else old["metadata"].get("managedFields")
        sent = new["metadata"].get("managedFields")
        if sent is None or sent == known or self.subresource:
            return _entries(known)
        if sent in ([], [{}]):
            return {}
        for index, entry in enumerate(sent):
            if not _is_usable(entry):
                return _entries(known)
            if entry.get("operation") not in (APPLY, UPDATE):
                place = f"metadata.managedFields[{index}].operation"
                text = f"Invalid value: {entry.get('operation')!r}: must be `Apply` or `Update`"
                raise self.served.refused(new, StatusCause(place, text))
        whole = [{key: value for key, value in each.items() if value != ""} for each in sent]
        return _entries(whole)


@dataclass(slots=True)
class Apply:
    """One apply request."""

    wanted: Object
    manager: str
    served: Served
    force: bool
    subresource: str
    entries: Entries = field(default_factory=dict)
    """Who owns what after it."""

    def created(self) -> Object:
        """The object to create where there is none yet."""
        self.entries = {self._me: self._entry(self._fields())}
        return {**self.wanted}

    def merged(self, live: Object) -> Object:
        """`live` (taken over) with what is applied; raises Conflict unless forced."""
        custom, before = self.served.custom, orjson.loads(orjson.dumps(live))
        old = self._part(before)
        entries = _entries(live["metadata"].get("managedFields")) or self._before(old)
        mine = entries.pop(self._me, {})
        wanted, had = self._fields(), mine.get("fieldsV1", {})
        configuration = {key: value for key, value in self.wanted.items() if key != "status"}
        if self.subresource:
            configuration = self.wanted
        merged: Object = field_sets.merge(live, configuration, "", custom)
        kept = wanted
        for entry in entries.values():
            kept = field_sets.union(kept, entry["fieldsV1"])
        field_sets.remove(merged, field_sets.minus(had, kept), kept)
        changed, removed = field_sets.compare(old, self._part(merged), custom=custom)
        self._settle_conflicts(before, entries, changed)
        _transfer(entries, changed, removed)
        if wanted != had or changed or removed:
            mine = self._entry(wanted)
        self.entries = entries | {self._me: mine} if wanted else entries
        if self.manager == _KUBECTL:
            last_applied.update_annotation(merged, self.wanted)
        return merged

    def record(self, new: Object, _: Object | None) -> None:
        """Write the ownership of fields into `new`, which is about to be stored."""
        new["metadata"]["managedFields"] = _listed(self.entries)

    @property
    def _me(self) -> Manager:
        return Manager(self.manager, APPLY, self.subresource)

    def _entry(self, fields: Fields) -> Object:
        return _entry(self._me, fields, self.served.resource.api_version)

    def _part(self, obj: Object) -> Object:
        return field_sets.owned_part(obj, status=self.subresource == "status")

    def _fields(self) -> Fields:
        return field_sets.applied(self._part(self.wanted), custom=self.served.custom)

    def _before(self, live: Object) -> Entries:
        version = self.served.resource.api_version
        manager = Manager(_BEFORE, UPDATE, "", version)
        fields, _ = field_sets.compare(_empty(self.served), live, custom=self.served.custom)
        return {manager: _entry(manager, fields, version)} if fields else {}

    def _settle_conflicts(self, live: Object, entries: Entries, changed: Fields) -> None:
        if self.force:
            return
        conflicts = [
            (manager, path)
            for manager, entry in sorted(entries.items())
            for path in field_sets.common(entry["fieldsV1"], changed)
        ]
        if conflicts and self.manager == _KUBECTL:
            # kubectl may change what its client-side apply has set.
            own = last_applied.applied_fields(live, custom=self.served.custom)
            conflicts = [each for each in conflicts if not field_sets.has(own, each[1])]
        if conflicts:
            raise apply_conflict(
                [
                    StatusCause(_readable(path), f"conflict with {manager}", "FieldManagerConflict")
                    for manager, path in conflicts
                ]
            )


def _empty(served: Served) -> Object:
    return {"metadata": {}, **served.unset}


def _transfer(entries: Entries, changed: Fields, removed: Fields) -> None:
    """Take the changed and removed fields from all `entries`."""
    if not changed and not removed:
        return
    for manager, entry in list(entries.items()):
        fields = field_sets.minus(field_sets.minus(entry["fieldsV1"], changed), removed)
        if fields:
            entries[manager] = {**entry, "fieldsV1": fields}
        else:
            del entries[manager]


def _limit_entries(entries: Entries) -> None:
    """Merge the oldest updates into one entry where there are too many."""
    updates = [manager for manager in entries if manager.operation == UPDATE]
    excess = len(updates) - MOST_UPDATERS
    if excess <= 0:
        return
    updates.sort(key=lambda each: (entries[each].get("time", ""), each))
    fields: Fields = {}
    for manager in updates[: excess + 1]:
        last = entries.pop(manager)
        fields = field_sets.union(fields, last["fieldsV1"])
    bucket = Manager(_ANCIENT, UPDATE, "", last.get("apiVersion", ""))
    entries[bucket] = {**_entry(bucket, fields, bucket.api_version), "time": last.get("time")}


def _entries(listed: Sequence[Object] | None) -> Entries:
    """The entries of `managedFields` that own a field."""
    return {Manager.from_entry(entry): entry for entry in listed or () if entry.get("fieldsV1")}


def _is_usable(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("fieldsType") == "FieldsV1"
        and field_sets.is_valid(entry.get("fieldsV1", {}))
    )


def _entry(manager: Manager, fields: Fields, api_version: str) -> Object:
    entry = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": api_version,
        "time": now_text(),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": manager.subresource} if manager.subresource else entry


def _listed(entries: Entries) -> list[Object]:
    """Entries in the order in which Kubernetes lists them."""
    return [
        entry
        for _, entry in sorted(
            entries.items(),
            key=lambda each: (
                each[0].operation,
                each[1].get("time") or "",
                each[0].name,
                each[0].subresource,
            ),
        )
    ]


def _readable(path: Path) -> str:
    """A path as kubectl shows it: `.spec.containers[name="x"].image`."""
    text = ""
    for name in path:
        kind, rest = name[:2], name[2:]
        if kind == "k:":
            pairs = orjson.loads(rest).items()
            text += f"[{','.join(f'{key}={json.dumps(value)}' for key, value in pairs)}]"
        else:
            text += f".{rest}" if kind == "f:" else f"[={rest}]"
    return text
