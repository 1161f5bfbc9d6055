"""Owner garbage collection, as kube-controller-manager does it.

An object whose owners are all gone (by UID) is deleted. An owner deleted in the foreground stays
until its blocking dependents are gone; one deleted with Orphan first lets go of its dependents.
Works on the registry directly, so that what it decides on is never stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from trainyard.kube.errors import Conflict, Forbidden, NotFound
from trainyard.local.metadata import FOREGROUND, ORPHAN
from trainyard.local.objects import Deletion
from trainyard.local.registry import Registry
from trainyard.local.storage.committer import Key
from trainyard.local.storage.journal import Event, Object

_PARALLEL = 64
"""Deletions under way at once; they share commits."""


class GarbageCollector:
    """Keeps the graph of owners and does what follows from each change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, set[Key]] = {}

    async def handle(self, events: Iterable[Event]) -> None:
        """Take up changes, in commit order, and act on all of them."""
        work: dict[Key, None] = {}
        for event in events:
            metadata = event.object["metadata"]
            key = _key(event)
            self._index(event, key)
            if event.type == "DELETED":
                for dependent in self._dependents.get(metadata["uid"], ()):
                    work[dependent] = None
                for reference in metadata.get("ownerReferences") or ():
                    owner = self._owner_key(reference, key.namespace)
                    if owner is not None:
                        work[owner] = None
            elif _matters(event):
                work[key] = None
        keys = list(work)
        for start in range(0, len(keys), _PARALLEL):
            await asyncio.gather(*(self._settle(key) for key in keys[start : start + _PARALLEL]))

    def _index(self, event: Event, key: Key) -> None:
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

    async def _settle(self, key: Key) -> None:
        """Do what the present state of one object asks for."""
        # Someone else was quicker, or a namespace is closing: the next event comes back to it.
        with suppress(NotFound, Conflict, Forbidden):
            obj = self._registry.peek(*key)
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
        if len(gone) == len(references):
            await self._registry.delete(*key, Deletion(uid=obj["metadata"]["uid"]))
            return
        uids = {reference["uid"] for reference in gone}
        await self._registry.update(*key, lambda copy: _without_owners(copy, uids))

    async def _orphan_dependents(self, key: Key, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in tuple(self._dependents.get(uid, ())):
            with suppress(NotFound):
                await self._registry.update(*dependent, lambda copy: _without_owners(copy, {uid}))
        await self._release(key, ORPHAN)

    async def _delete_dependents(self, key: Key, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocked = False
        for dependent in tuple(self._dependents.get(uid, ())):
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
            return True  # a kind that is not served: not ours to judge
        try:
            found: Any = self._registry.peek(*owner)["metadata"]["uid"]
        except NotFound:
            return False
        return bool(found == reference.get("uid"))

    def _owner_key(self, reference: Object, namespace: str) -> Key | None:
        api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        served = self._registry.resources.of_kind(api_version, kind)
        if served is None:
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
