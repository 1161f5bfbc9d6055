"""Owner garbage collection, as kube-controller-manager does it.

An object whose owners are all gone (by UID) is deleted. An owner deleted in the foreground stays
until its blocking dependents are gone; one deleted with Orphan first lets go of its dependents.
Works on the registry directly, so that what it decides on is never stale.

An owner with a namespace owns only what is in that namespace (decision 93; https://kubernetes.io/
docs/concepts/overview/working-with-objects/owners-dependents/): for an object elsewhere it is as if
it were gone, and a warning says so; an object without a namespace is never deleted for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.object_metadata import FOREGROUND, ORPHAN
from trainyard.embedded.registry import Registry
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor
from trainyard.embedded.storage.committer import Key
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kube.errors import Conflict, Forbidden, NotFound
from trainyard.kube.resources import EVENTS
from trainyard.schema.errors import TrainyardError

_COMPONENT = "garbage-collector-controller"
_PARALLEL = 64
"""Deletions under way at once; they share commits."""


class GarbageCollector:
    """Keeps the graph of owners and dependents, and deletes or releases objects by it."""

    def __init__(self, registry: Registry, supervisor: Supervisor | None = None) -> None:
        self._registry = registry
        self._dependents: dict[str, set[Key]] = {}
        self._namespaces: dict[str, str] = {}
        """By UID, of every object."""
        self.guard: RetryGuard[Key] = RetryGuard("garbage collector", supervisor)

    async def handle(self, events: Iterable[Event]) -> None:
        """Take in changes, in commit order, and act on all of them."""
        work: dict[Key, None] = dict.fromkeys(self.guard.due_retries())
        for event in events:
            with self.guard.step(event.object, _key(event), "owners"):
                work |= dict.fromkeys(self._affected(event))
        keys = list(work)
        for start in range(0, len(keys), _PARALLEL):
            await asyncio.gather(*(self._reconcile(key) for key in keys[start : start + _PARALLEL]))

    def _affected(self, event: Event) -> Iterable[Key]:
        """Take a change into the graph; yields the objects that it may affect."""
        metadata = event.object["metadata"]
        key = _key(event)
        self._index(event, key)
        if event.type == "DELETED":
            yield from self._dependents.get(metadata["uid"], ())
            for reference in metadata.get("ownerReferences") or ():
                owner = self._owner_key(reference, key.namespace)
                if owner is not None:
                    yield owner
        elif _matters(event):
            yield key

    def _index(self, event: Event, key: Key) -> None:
        if event.type == "DELETED":
            self._namespaces.pop(event.object["metadata"]["uid"], None)
        elif event.type == "ADDED":
            self._namespaces[event.object["metadata"]["uid"]] = key.namespace
        before = _owner_uids(event.old) if event.old is not None else set()
        after = _owner_uids(event.object) if event.type != "DELETED" else set()
        for uid in before - after:
            remaining = self._dependents.get(uid)
            if remaining is not None:
                remaining.discard(key)
                if not remaining:
                    del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(key)

    async def _reconcile(self, key: Key) -> None:
        """Bring one object to the state that its owners and finalizers ask for."""
        # Someone else was quicker, or a namespace is closing: the next event comes back to it.
        with suppress(NotFound):
            obj = self._registry.peek(*key)
            with self.guard.step(obj, key), suppress(NotFound, Conflict, Forbidden):
                await self._reconcile_object(key, obj)

    async def _reconcile_object(self, key: Key, obj: Object) -> None:
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers") or ()
            if ORPHAN in finalizers:
                await self._orphan_dependents(key, obj)
            elif FOREGROUND in finalizers:
                await self._delete_dependents(key, obj)
        elif metadata.get("ownerReferences"):
            await self._check_owners(key, obj)

    async def _check_owners(self, key: Key, obj: Object) -> None:
        references = obj["metadata"]["ownerReferences"]
        gone = [ref for ref in references if not self._owner_exists(ref, key.namespace)]
        if not gone:
            return
        for reference in gone:
            if self._namespaces.get(reference.get("uid"), key.namespace) != key.namespace:
                await self._warn_of_namespace(obj, reference)
        if len(gone) == len(references):
            await self._registry.delete(*key, Deletion(uid=obj["metadata"]["uid"]))
            return
        uids = {reference["uid"] for reference in gone}
        await self._registry.update(*key, lambda copy: _without_owners(copy, uids))

    async def _warn_of_namespace(self, obj: Object, reference: Object) -> None:
        metadata, now = obj["metadata"], now_text()
        about = {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")}
        about |= {name: metadata[name] for name in ("name", "namespace", "uid")}
        message = (
            f"ownerRef [{reference.get('apiVersion')}/{reference.get('kind')}, "
            f"namespace: {metadata['namespace']}, name: {reference.get('name')}, "
            f"uid: {reference.get('uid')}] does not exist in namespace "
            f'"{metadata["namespace"]}"'
        )
        event = {
            "metadata": {
                "name": f"{metadata['name']}.{reference.get('uid')}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": about,
            "type": "Warning",
            "reason": "OwnerRefInvalidNamespace",
            "message": message,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with suppress(TrainyardError):  # told already, or there is no room: not worth more
            await self._registry.create(EVENTS.full_name, event)

    def _dependents_of(self, owner: Object) -> list[Key]:
        metadata = owner["metadata"]
        namespace = metadata.get("namespace", "")
        found = self._dependents.get(metadata["uid"], ())
        return [key for key in found if not namespace or key.namespace == namespace]

    async def _orphan_dependents(self, key: Key, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in self._dependents_of(owner):
            with suppress(NotFound):
                await self._registry.update(*dependent, lambda copy: _without_owners(copy, {uid}))
        await self._release(key, ORPHAN)

    async def _delete_dependents(self, key: Key, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocked = False
        for dependent in self._dependents_of(owner):
            try:
                obj = self._registry.peek(*dependent)
            except NotFound:
                continue
            blocked |= any(
                reference["uid"] == uid and reference.get("blockOwnerDeletion")
                for reference in obj["metadata"].get("ownerReferences") or ()
            )
            if obj["metadata"].get("deletionTimestamp"):
                continue
            nested = obj["metadata"]["uid"] in self._dependents
            with suppress(NotFound, Conflict):
                propagation = "Foreground" if nested else None
                how = Deletion(uid=obj["metadata"]["uid"], propagation=propagation)
                await self._registry.delete(*dependent, how)
        if not blocked:
            await self._release(key, FOREGROUND)

    async def _release(self, key: Key, finalizer: str) -> None:
        def change(copy: Object) -> Object:
            metadata = copy["metadata"]
            metadata["finalizers"] = [
                each for each in metadata.get("finalizers", ()) if each != finalizer
            ]
            return copy

        await self._registry.update(*key, change)

    def _owner_exists(self, reference: Object, namespace: str) -> bool:
        owner = self._owner_key(reference, namespace)
        if owner is None:
            return True  # not ours to judge
        try:
            found: Any = self._registry.peek(*owner)["metadata"]["uid"]
        except NotFound:
            return False
        return bool(found == reference.get("uid"))

    def _owner_key(self, reference: Object, namespace: str) -> Key | None:
        """None for a kind that is not served, or that cannot own an object in no namespace."""
        api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        served = self._registry.resources.of_kind(api_version, kind)
        if served is None or (served.resource.namespaced and not namespace):
            return None
        place = namespace if served.resource.namespaced else ""
        return Key(served.name, place, reference.get("name", ""))


def _key(event: Event) -> Key:
    metadata = event.object["metadata"]
    return Key(event.resource, metadata.get("namespace", ""), metadata["name"])


def _owner_uids(obj: Object) -> set[str]:
    references = obj["metadata"].get("ownerReferences") or ()
    return {reference["uid"] for reference in references if "uid" in reference}


def _matters(event: Event) -> bool:
    """True when owners or the state of deletion changed."""
    metadata = event.object["metadata"]
    if not metadata.get("ownerReferences") and not metadata.get("deletionTimestamp"):
        return False
    old = event.old["metadata"] if event.old is not None else {}
    fields = ("ownerReferences", "deletionTimestamp", "finalizers")
    return any(metadata.get(field) != old.get(field) for field in fields)


def _without_owners(copy: Object, uids: set[str]) -> Object:
    metadata = copy["metadata"]
    metadata["ownerReferences"] = [
        reference
        for reference in metadata.get("ownerReferences") or ()
        if reference.get("uid") not in uids
    ]
    return copy
