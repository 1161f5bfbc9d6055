"""Collects garbage, empties terminating namespaces and deletes old events."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from trainyard.embedded import malloc_trim
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.controllers.garbage_collector import GarbageCollector
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.served.serviceaccounts_resource import SERVICE_ACCOUNTS
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Entry, Event, Object
from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainyard.kube.resources import EVENTS, NAMESPACES
from trainyard.schema.times import unix

EVENT_SECONDS = 3600.0
"""How long events are kept, as kube-apiserver's --event-ttl."""
MAX_EVENTS = 5_000
"""More are deleted however young, so that a burst of jobs does not fill the memory."""
MAX_SURPLUS_EVENTS = 256
"""This many above the limit start the clean-up at once."""
_SWEEP_SECONDS = 10.0
_MANY_CHANGES = 1_000
"""After so many changes the next quiet moment returns memory, which blocks for some 10 ms."""
_TOGETHER = 64
"""Deletions under way at once; they share commits."""

_NAMESPACES = NAMESPACES.full_name
_ACCOUNTS = SERVICE_ACCOUNTS.full_name
_EVENTS = EVENTS.full_name


class Housekeeping:
    """Run beside the registry for as long as the cluster lives."""

    def __init__(self, registry: Registry, supervisor: Supervisor | None = None) -> None:
        self._registry = registry
        self._garbage = GarbageCollector(registry, supervisor)
        self._supervisor = supervisor if supervisor is not None else Supervisor()
        self._guard: RetryGuard[str] = RetryGuard("namespaces", self._supervisor)
        self._event_times: dict[int, float] = {}
        self._event_count = 0
        self._crowded = asyncio.Event()
        self._tidy_revision = registry.revision
        self._stored = [
            row for row in registry.resources if not row.view_of and not row.is_read_only
        ]

    async def run(self) -> None:
        """Work until cancelled, or until the registry closes."""
        subscription = self._registry.subscribe(*(row.name for row in self._stored))
        try:
            async with asyncio.TaskGroup() as tasks:
                sweeping = tasks.create_task(
                    self._supervisor.keep_running("events", self._sweep_events)
                )
                async for events in event_batches(subscription, self._garbage.guard, self._guard):
                    await self._garbage.handle(events)
                    await self._handle_namespaces(events)
                    for event in events:
                        if event.resource == _EVENTS:
                            self._count_event(event)
                        if event.type == "DELETED":
                            self._supervisor.forget_object(event.object)
                sweeping.cancel()
        finally:
            self._registry.unsubscribe(subscription)

    async def _handle_namespaces(self, events: list[Event]) -> None:
        touched: dict[str, None] = dict.fromkeys(self._guard.due_retries())
        for event in events:
            metadata = event.object["metadata"]
            if event.resource == _NAMESPACES:
                touched[metadata["name"]] = None
            elif event.type != "MODIFIED" and metadata.get("namespace"):
                touched[metadata["namespace"]] = None
        for name in touched:
            try:
                namespace = self._registry.get(_NAMESPACES, "", name)
            except NotFound:
                continue
            with self._guard.step(namespace, name):
                if namespace["metadata"].get("deletionTimestamp"):
                    await self._empty_namespace(name)
                elif not name.startswith("kube-"):
                    await self._ensure_service_account(name)

    async def _ensure_service_account(self, namespace: str) -> None:
        with suppress(NotFound):
            self._registry.peek(_ACCOUNTS, namespace, "default")
            return
        with suppress(AlreadyExists, Forbidden, NotFound):
            await self._registry.create(
                _ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}}
            )

    async def _empty_namespace(self, namespace: str) -> None:
        """Delete everything in a terminating namespace, then remove its finalizer."""
        contents = [
            (row.name, obj)
            for row in self._stored
            if row.resource.namespaced
            for obj in self._registry.list(row.name, namespace)
        ]
        contents += [
            (corrupt.resource, corrupt.stub)
            for corrupt in self._registry.corrupt_objects
            if corrupt.namespace == namespace and corrupt.stub is not None
        ]
        if contents:
            await asyncio.gather(
                *(
                    self._delete(resource, obj)
                    for resource, obj in contents
                    if not obj["metadata"].get("deletionTimestamp")
                )
            )
            return

        def release(copy: Object) -> Object:
            copy["spec"] = {**copy.get("spec", {}), "finalizers": []}
            return copy

        with suppress(NotFound, Conflict):
            await self._registry.update(_NAMESPACES, "", namespace, release, subresource="finalize")

    async def _delete(self, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        with suppress(NotFound, Conflict):
            await self._registry.delete(
                resource, metadata["namespace"], metadata["name"], Deletion(uid=metadata["uid"])
            )

    def _count_event(self, event: Event) -> None:
        self._event_count += {"ADDED": 1, "DELETED": -1}.get(event.type, 0)
        if self._event_count >= MAX_EVENTS + MAX_SURPLUS_EVENTS:
            self._crowded.set()

    async def _sweep_events(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await self._crowded.wait()
            except TimeoutError:
                self.trim_memory()
            self._crowded.clear()
            await self.delete_old_events(time.time() - EVENT_SECONDS)

    def trim_memory(self) -> None:
        """Let the system have what objects took that are gone, once there were many changes."""
        if self._registry.revision - self._tidy_revision >= _MANY_CHANGES:
            self._tidy_revision = self._registry.revision
            malloc_trim.trim_malloc()

    async def delete_old_events(self, before: float) -> None:
        """Delete the events that were last seen before a time (seconds since 1970), and the oldest
        of more than MOST_EVENTS."""
        entries = self._registry.entries(_EVENTS)
        times = {entry.revision: self._last_seen(entry) for entry in entries}
        self._event_times = times
        entries = sorted(entries, key=lambda entry: times[entry.revision])
        surplus = len(entries) - MAX_EVENTS
        gone = [
            entry.object
            for number, entry in enumerate(entries)
            if number < surplus or times[entry.revision] < before
        ]
        for start in range(0, len(gone), _TOGETHER):
            await asyncio.gather(
                *(self._delete_event(each) for each in gone[start : start + _TOGETHER])
            )

    def _last_seen(self, entry: Entry) -> float:
        """When an event was last seen; 0 where nobody can tell. Looked up once for each version."""
        known = self._event_times.get(entry.revision)
        if known is not None:
            return known
        event = entry.object
        seen = event.get("lastTimestamp") or event.get("eventTime")
        try:
            return unix(seen or event["metadata"]["creationTimestamp"])
        except ValueError:
            return 0.0

    async def _delete_event(self, event: Object) -> None:
        with self._guard.step(event, event["metadata"]["namespace"], "forgetting"):
            await self._delete(_EVENTS, event)
