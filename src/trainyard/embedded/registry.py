"""The embedded API server's engine, without HTTP: objects, versions, deletion, subscriptions.

Scheduler, node agent and garbage collector use it in process; the HTTP server puts admission,
patches and formats in front of it. Everything runs on one event loop. What a reader or watcher
sees has been committed; a write is based on writes that are still being committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import orjson

from trainyard.embedded import object_metadata
from trainyard.embedded.api_errors import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    method_not_allowed,
    no_such_path,
    not_found,
)
from trainyard.embedded.cluster_objects import PLAIN, Deletion, Mutation
from trainyard.embedded.corrupt_objects import CorruptObject, read_rows
from trainyard.embedded.resources.resource import Served
from trainyard.embedded.resources.resource_table import Resources
from trainyard.embedded.storage.committer import Change, Committer, Key
from trainyard.embedded.storage.journal import Entry, Event, Journal, Object, Subscription, encoded
from trainyard.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from trainyard.embedded.storage.store import Store

_NAMESPACES = NAMESPACES.full_name
_GROWTH_BYTES = 16 << 10
"""What an update may add to an object while the disk is full (decision 92): statuses do not."""


Record = Callable[[Object, Object | None], None]
"""Writes the ownership of fields into an object that is about to be stored."""


class Registry:
    """All objects of one embedded cluster: `Objects` in process."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        resources: Resources | None = None,
        journal_bytes: int = 8 << 20,
    ) -> None:
        """Load `store`, or keep everything in memory only when there is none.

        `resources` are what it has objects of, by default Kubernetes' core resources;
        `journal_bytes` bounds how far back a watch can be resumed.
        """
        self.resources = resources = resources if resources is not None else Resources()
        self._objects: dict[str, dict[tuple[str, str], Entry]] = {
            row.name: {} for row in resources if not row.view_of
        }
        self._corrupt: dict[Key, CorruptObject] = {}
        revision = max(1, self._load(store) if store is not None else 0)
        self._committer = Committer(store, self._publish, revision)
        self._journal = Journal(revision, journal_bytes)
        self._visible_revision = revision

    def _load(self, store: Store) -> int:
        """Read what is stored; the highest resourceVersion that was given out."""
        revision = store.revision()
        for found in read_rows(store.rows(), self.resources):
            if isinstance(found, CorruptObject):
                self._corrupt[Key(*found[:3])] = found
                continue
            resource, place, entry = found
            self._objects[resource][place] = entry
            if self.resources[resource].is_rarely_read(entry.object):
                entry.release_object()
            revision = max(revision, entry.revision)
        return revision

    @property
    def corrupt_objects(self) -> Sequence[CorruptObject]:
        """Stored objects that cannot be read: not listed, not watched, but they can be deleted."""
        return tuple(self._corrupt.values())

    # Reading.

    @property
    def revision(self) -> int:
        """The resourceVersion of the newest committed change."""
        return self._visible_revision

    def get(self, resource: str, namespace: str, name: str) -> Object:
        return self.entry(resource, namespace, name).object

    def entry(self, resource: str, namespace: str, name: str) -> Entry:
        """The object with its JSON; raises NotFound."""
        entry = self._table(resource).get((namespace, name))
        if entry is not None:
            return entry
        corrupt = self._corrupt.get(Key(resource, namespace, name))
        if corrupt is None or corrupt.stub is None:
            raise not_found(resource, name)
        return Entry(corrupt.stub, orjson.dumps(corrupt.stub), 1)

    def json_of(self, resource: str, obj: Object) -> bytes | None:
        """The JSON of an object that was stored just now; None where it is not stored so."""
        metadata = obj["metadata"]
        entry = self._table(resource).get((metadata.get("namespace", ""), metadata["name"]))
        return None if entry is None else entry.json_of(obj)

    def peek(self, resource: str, namespace: str, name: str) -> Object:
        """As `get`, but including a write that is still being committed."""
        return self._present(Key(resource, namespace, name)).object

    def list(self, resource: str, namespace: str | None = None) -> list[Object]:
        return [entry.object for entry in self.entries(resource, namespace)]

    def entries(self, resource: str, namespace: str | None = None) -> Sequence[Entry]:
        """As `list`, with each object's JSON."""
        table = self._table(resource)
        keys = sorted(key for key in table if namespace is None or key[0] == namespace)
        return [table[key] for key in keys]

    def entries_at(
        self, resource: str, revision: int, namespace: str | None = None
    ) -> Sequence[Entry]:
        """As `entries`, of a past revision; raises Gone where that is not remembered any more."""
        table = dict(self._table(resource))
        for event in reversed(self._journal.since(resource, revision)):
            place = event.object["metadata"]
            key = (place.get("namespace", ""), place["name"])
            if event.old is None:
                table.pop(key, None)
            else:
                known = int(event.old["metadata"]["resourceVersion"])
                table[key] = Entry(event.old, encoded(event.old), known)
        return [table[key] for key in sorted(table) if namespace is None or key[0] == namespace]

    def add_builtin_objects(self, resource: str, objects: Iterable[Object]) -> None:
        """Add objects that are part of the program; they are neither stored nor watched.

        For read-only resources only.
        """
        table = self._table(resource)
        for obj in objects:
            meta = obj["metadata"]
            entry = Entry(obj, encoded(obj), int(meta["resourceVersion"]))
            table[meta.get("namespace", ""), meta["name"]] = entry

    def subscribe(self, *resources: str) -> Subscription:
        """Every object of these resources as ADDED, and all later changes."""
        backlog = (
            Event("ADDED", resource, entry.object, None, entry.raw, entry.revision)
            for resource in resources
            for entry in self.entries(resource)
        )
        return self._listen(resources, Subscription(backlog))

    def watch(self, resource: str, since: int) -> Subscription:
        """Changes of one resource after resourceVersion `since`; raises Gone if too old."""
        backlog = self._journal.since(resource, since)
        return self._listen((resource,), Subscription(backlog))

    def unsubscribe(self, subscription: Subscription) -> None:
        self._journal.forget(subscription)

    async def keep_backup(self) -> None:
        """Keep a copy of the store beside it, until cancelled; at once if there is no store."""
        await self._committer.keep_backup()

    async def close(self) -> None:
        """Commit what is under way, end all subscriptions, close the store."""
        await self._committer.close()
        self._journal.close()

    # Writing.

    async def ensure_system_objects(self) -> None:
        """Create the objects that every cluster has, replacing corrupt ones."""
        for row in self.resources:
            for obj in () if row.is_read_only else row.initial_objects():
                await self.remove_corrupt(row.name, "", obj["metadata"]["name"])
        missing = [
            (row.name, obj)
            for row in self.resources
            if not row.is_read_only
            for obj in row.initial_objects()
            if (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            not in self._table(row.name)
        ]
        await asyncio.gather(*(self.create(name, obj) for name, obj in missing))

    async def remove_corrupt(self, resource: str, namespace: str, name: str) -> None:
        """Delete the object of a name if it is corrupt."""
        if Key(resource, namespace, name) in self._corrupt:
            await self.delete(resource, namespace, name)

    async def create(
        self, resource: str, obj: Object, *, dry_run: bool = False, record: Record | None = None
    ) -> Object:
        """Store a new object (taken over, do not touch it again); returns it completed."""
        served = self._served(resource)
        key = object_metadata.complete(served, obj)
        if self._current(key) is not None or key in self._corrupt:
            raise already_exists(resource, key.name)
        self._check_namespace(key)
        present = partial(self._latest_objects, resource)
        served.prepare_create(obj, present)
        if record is not None:
            record(obj, None)
        served.allocate(obj, present)
        if dry_run:
            return obj
        return await self._write(key, "ADDED", obj, None)

    async def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        change: Mutation,
        *,
        subresource: str = "",
        dry_run: bool = False,
        record: Record | None = None,
    ) -> Object:
        """A resourceVersion that `change` puts into the copy is a precondition, unless it is 0."""
        served = self._served(resource)
        key = Key(resource, namespace, name)
        current = self._present(key)
        new = change(orjson.loads(current.raw))
        if new is None:
            return current.object
        old, wanted = current.object, new["metadata"]
        version = wanted.get("resourceVersion")
        object_metadata.check_preconditions(
            key, wanted.get("uid"), version if version not in ("", "0") else None, old
        )
        if subresource == "status":
            new = {**old, "metadata": {**old["metadata"]}, "status": new.get("status", {})}
        elif served.status and not subresource:
            object_metadata.keep(new, old, "status")
        object_metadata.retain(served, new, old)
        if subresource:
            served.prepare_part(subresource, new, old)
        else:
            served.prepare_update(new, old, partial(self._latest_objects, resource))
        if record is not None:
            record(new, old)
        elif "managedFields" in old["metadata"]:  # long: all versions have the same one
            new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        if new == old:
            return old
        if served.generation and object_metadata.spec_differs(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if dry_run:
            return new
        return await self._write(key, _type(served, new), new, current)

    async def delete(
        self, resource: str, namespace: str, name: str, how: Deletion = PLAIN
    ) -> Object:
        """As `Objects` says.

        A pod that a node runs is marked; the node agent stops it and deletes it with
        `grace_seconds` 0. Finalizers hold any object until they are removed.
        """
        served = self._served(resource)
        key = Key(resource, namespace, name)
        if (corrupt := self._corrupt.get(key)) is not None and corrupt.stub is not None:
            object_metadata.check_preconditions(key, how.uid, how.resource_version, corrupt.stub)
            if how.dry_run:
                return corrupt.stub
            return await self._write(key, "DELETED", dict(corrupt.stub), None)
        current = self._present(key)
        old = current.object
        object_metadata.check_preconditions(key, how.uid, how.resource_version, old)
        served.check_delete(name)
        new: Object = orjson.loads(current.raw)
        object_metadata.mark_deleted(served, new, how)
        if how.dry_run or new == old:
            return new
        return await self._write(key, _type(served, new), new, current)

    # Inside.

    def _served(self, resource: str) -> Served:
        served = self.resources.get(resource)
        if served is None or served.view_of:
            raise no_such_path(f"no resource {resource!r} is served")
        if served.is_read_only:
            raise method_not_allowed("writing", resource)
        return served

    def _table(self, resource: str) -> dict[tuple[str, str], Entry]:
        table = self._objects.get(resource)
        if table is None:
            raise no_such_path(f"no resource {resource!r} is served")
        return table

    def _current(self, key: Key) -> Entry | None:
        staged = self._committer.staged(key)
        if staged is not None:
            return staged.entry
        return self._table(key.resource).get((key.namespace, key.name))

    def _present(self, key: Key) -> Entry:
        current = self._current(key)
        if current is not None:
            return current
        if (corrupt := self._corrupt.get(key)) is not None:
            why = f"what is stored of it cannot be read ({corrupt.problem}); delete it"
            raise conflict(key.resource, key.name, why)
        raise not_found(key.resource, key.name)

    def _check_namespace(self, key: Key) -> None:
        if not key.namespace:
            return
        if self.peek(_NAMESPACES, "", key.namespace)["metadata"].get("deletionTimestamp"):
            raise forbidden(
                key.resource,
                key.name,
                f"unable to create new content in namespace {key.namespace} "
                "because it is being terminated",
            )

    def _latest_objects(self, resource: str) -> Iterator[Object]:
        for namespace, name in self._table(resource):
            current = self._current(Key(resource, namespace, name))
            if current is not None:
                yield current.object
        yield from (
            change.entry.object
            for change in self._committer.all_staged()
            if change.key.resource == resource and change.entry is not None
        )

    async def _write(self, key: Key, type_: str, obj: Object, old: Entry | None) -> Object:
        revision = self._committer.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        try:
            final = Entry(obj, encoded(obj), revision)
        except orjson.JSONEncodeError as error:
            raise bad_request(f"{key.resource} {key.name} cannot be stored: {error}") from error
        before = self._current(key)
        known = len(before.raw) if before is not None else -_GROWTH_BYTES
        if type_ != "DELETED" and len(final.raw) > known + _GROWTH_BYTES:
            self._committer.check_room()
        self._committer.revision = revision
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = None if type_ == "DELETED" else final
        self._committer.stage(Change(key, type_, entry, final, old, done))
        await done
        return obj

    def _publish(self, batch: Sequence[Change]) -> None:
        for change in batch:
            table = self._objects[change.key.resource]
            place = (change.key.namespace, change.key.name)
            if change.entry is None:
                table.pop(place, None)
                self._corrupt.pop(change.key, None)
            else:
                table[place] = change.entry
            final = change.final
            self._visible_revision = final.revision
            old = change.old.object if change.old is not None else None
            what = (change.type, change.key.resource, final.object, old)
            self._journal.record(Event(*what, final.raw, final.revision), final, change.old)
            if self.resources[change.key.resource].is_rarely_read(final.object):
                final.release_object()

    def _listen(self, resources: Sequence[str], subscription: Subscription) -> Subscription:
        for resource in resources:
            self._table(resource)
        self._journal.listen(resources, subscription)
        return subscription


def _type(served: Served, new: Object) -> str:
    return "DELETED" if object_metadata.is_released(served, new) else "MODIFIED"
