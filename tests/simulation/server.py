"""A model of the Kubernetes API: what it promises about objects, versions, deletion and watches.

Only what the controller relies on is modelled, and that as strictly as Kubernetes does it:
resourceVersions and UID preconditions, status as a subresource, graceful deletion of pods that
are bound to a node, label selectors, owner garbage collection, and watches that can be followed
only as far back as the log reaches.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import orjson

from trainyard.schema.times import render

Obj = dict[str, Any]


class Key(NamedTuple):
    """Where an object is stored."""

    plural: str
    namespace: str
    name: str


class Change(NamedTuple):
    """One entry of the log: ADDED, MODIFIED or DELETED."""

    version: int
    type: str
    object: Obj
    old: Obj | None


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """The request is answered with a Status of this code and reason."""

    code: int
    reason: str
    message: str = ""

    def body(self) -> bytes:
        """The Status."""
        return orjson.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": self.code,
                "reason": self.reason,
                "message": self.message or self.reason,
            }
        )


class Observer:
    """Sees every change as it happens; the model's own actors and the invariants are observers."""

    def changed(self, plural: str, change: Change) -> None:
        """An object changed."""


@dataclass(slots=True)
class ModelServer:
    """Objects, and the log of their changes."""

    now: Callable[[], datetime]
    rng: random.Random
    objects: dict[Key, Obj] = field(default_factory=dict)
    log: dict[str, list[Change]] = field(default_factory=dict)
    version: int = 100
    compacted: int = 0
    """Watches from before this version are answered with 410."""
    observers: list[Observer] = field(default_factory=list)
    reviews: dict[str, Callable[[Obj | None, Obj], None]] = field(default_factory=dict)
    """Webhooks, by resource: raise `Refused` for what they do not let in."""
    moved: dict[str, asyncio.Event] = field(default_factory=dict)
    """Set, and replaced, at every change of a resource."""

    def get(self, key: Key) -> Obj:
        """The object as stored; never change it."""
        if key not in self.objects:
            raise Refused(404, "NotFound", f'{key.plural} "{key.name}" not found')
        return self.objects[key]

    def all(self, plural: str, label: str = "", fields: str = "") -> list[Obj]:
        """All objects of a resource that carry a label, with these fields (`a.b=c,d=e`)."""
        return [
            obj
            for key, obj in self.objects.items()
            if key.plural == plural and _selected(obj, label) and _has_fields(obj, fields)
        ]

    def owned(self, plural: str, uid: str) -> Iterator[Obj]:
        """The objects of a resource that a job owns."""
        for key, obj in self.objects.items():
            if key.plural == plural and owner_uid(obj) == uid:
                yield obj

    def create(self, plural: str, namespace: str, obj: Obj) -> Obj:
        """Store a new object."""
        metadata = dict(obj["metadata"])
        key = Key(plural, namespace, metadata["name"])
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{plural} "{key.name}" already exists')
        metadata["namespace"] = namespace
        metadata["uid"] = f"{self.rng.getrandbits(64):016x}"
        metadata["creationTimestamp"] = render(self.now().replace(microsecond=0))
        metadata["generation"] = 1
        obj = {**obj, "metadata": metadata}
        if plural == "pods":
            obj["status"] = {"phase": "Pending"}
        self._review(plural, None, obj)
        return self._store(key, "ADDED", obj, None)

    def _review(self, plural: str, old: Obj | None, new: Obj) -> None:
        if plural in self.reviews:
            self.reviews[plural](old, new)

    def replace(self, key: Key, obj: Obj, *, status_only: bool) -> Obj:
        """PUT of the object, or of its status subresource."""
        old = self.get(key)
        given = obj["metadata"]
        if given.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise Refused(409, "Conflict", "the UID in the precondition does not match")
        wanted = given.get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", "the object has been modified")
        if not status_only:
            return self._store(key, "MODIFIED", {**obj, "metadata": old["metadata"]}, old)
        if obj.get("status") == old.get("status"):
            return old
        return self._store(key, "MODIFIED", {**old, "status": obj.get("status")}, old)

    def patch(self, key: Key, patch: Obj | list[Obj]) -> Obj:
        """A JSON merge patch, or the steps of a JSON patch that tests the UID first."""
        old = self.get(key)
        if isinstance(patch, list):
            new = _apply(old, patch)
        else:
            given = patch.get("metadata") or {}
            if given.get("uid") not in (None, old["metadata"]["uid"]):
                raise Refused(409, "Conflict", "the UID in the precondition does not match")
            if given.get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
                raise Refused(409, "Conflict", "the object has been modified")
            new = _merge(old, patch)
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            generation = old["metadata"].get("generation", 1) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        self._review(key.plural, old, new)
        return self._store(key, "MODIFIED", new, old)

    def set(self, key: Key, **parts: Any) -> Obj:
        """What the model's own actors write: top-level parts, unconditionally."""
        old = self.get(key)
        return self._store(key, "MODIFIED", {**old, **parts}, old)

    def delete(self, key: Key, *, uid: str | None = None, grace: int | None = None) -> Obj:
        """Delete; a pod that is bound to a node only begins to terminate."""
        old = self.get(key)
        metadata = old["metadata"]
        if uid is not None and uid != metadata["uid"]:
            raise Refused(409, "Conflict", "the UID in the precondition does not match")
        if key.plural == "pods" and old.get("spec", {}).get("nodeName") and grace != 0:
            if metadata.get("deletionTimestamp"):
                return old
            seconds = grace if grace is not None else 30
            at = self.now().replace(microsecond=0) + timedelta(seconds=seconds)
            metadata = {
                **metadata,
                "deletionTimestamp": render(at),
                "deletionGracePeriodSeconds": seconds,
            }
            return self._store(key, "MODIFIED", {**old, "metadata": metadata}, old)
        del self.objects[key]
        return self._record(key, "DELETED", old, old)

    def forget_history(self) -> None:
        """As etcd's compaction: watches cannot start from before now."""
        self.compacted = self.version

    def wake_watches(self) -> None:
        """Have every open watch look around, although nothing has changed."""
        for moved in self.moved.values():
            moved.set()
        self.moved.clear()

    def changes(self, plural: str, after: int) -> list[Change]:
        """The log from a version on."""
        log = self.log.get(plural, [])
        position = len(log)
        while position and log[position - 1].version > after:
            position -= 1
        return log[position:]

    def movement(self, plural: str) -> asyncio.Event:
        """Set at the next change of a resource."""
        return self.moved.setdefault(plural, asyncio.Event())

    def _store(self, key: Key, type_: str, obj: Obj, old: Obj | None) -> Obj:
        stored = self._record(key, type_, obj, old)
        self.objects[key] = stored
        for observer in self.observers:
            observer.changed(key.plural, self.log[key.plural][-1])
        return stored

    def _record(self, key: Key, type_: str, obj: Obj, old: Obj | None) -> Obj:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        obj = {**obj, "metadata": metadata}
        change = Change(self.version, type_, obj, old)
        self.log.setdefault(key.plural, []).append(change)
        moved = self.moved.pop(key.plural, None)
        if moved is not None:
            moved.set()
        if type_ == "DELETED":
            for observer in self.observers:
                observer.changed(key.plural, change)
        return obj


def owner_uid(obj: Obj) -> str:
    """UID of the object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return ""


def _selected(obj: Obj, label: str) -> bool:
    return not label or label in (obj["metadata"].get("labels") or {})


def _has_fields(obj: Obj, fields: str) -> bool:
    for field_ in filter(None, fields.split(",")):
        path, _, value = field_.partition("=")
        found: Any = obj
        for name in path.split("."):
            found = (found or {}).get(name)
        if found != value:
            return False
    return True


def _apply(old: Obj, steps: list[Obj]) -> Obj:
    """JSON patch, as far as it is used here: `test` and `replace`."""
    new: Obj = copy.deepcopy(old)
    for step in steps:
        *names, last = [
            int(name) if name.isdecimal() else name for name in step["path"].strip("/").split("/")
        ]
        place: Any = new
        for name in names:
            place = place[name]
        if step["op"] == "replace":
            place[last] = step["value"]
        elif place[last] != step["value"]:
            raise Refused(422, "Invalid", f"the test of {step['path']} failed")
    return new


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(patch, dict):
        return patch
    merged = dict(old)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(old.get(name), value)
    return merged
