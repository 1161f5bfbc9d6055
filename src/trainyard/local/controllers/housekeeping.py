"""What a control plane does by itself: collect garbage, empty namespaces, forget old events."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainyard.kube.resources import EVENTS, NAMESPACES
from trainyard.local.controllers.garbage import GarbageCollector
from trainyard.local.findings import Findings, Guard, batches
from trainyard.local.objects import Deletion
from trainyard.local.registry import Registry
from trainyard.local.resources.serviceaccounts import SERVICE_ACCOUNTS
from trainyard.local.storage.journal import Event, Object
from trainyard.schema.times import unix

EVENT_SECONDS = 3600.0
"""How long events are kept, as kube-apiserver's --event-ttl."""
_SWEEP_SECONDS = 60.0

_NAMESPACES = NAMESPACES.full_name
_ACCOUNTS = SERVICE_ACCOUNTS.full_name
_EVENTS = EVENTS.full_name


class Housekeeping:
    """Run beside the registry for as long as the cluster lives."""

    def __init__(self, registry: Registry, findings: Findings | None = None) -> None:
        self._registry = registry
        self._garbage = GarbageCollector(registry, findings)
        self._findings = findings if findings is not None else Findings()
        self._guard: Guard[str] = Guard("namespaces", self._findings)
        self._stored = [
            row for row in registry.resources if not row.view_of and not row.is_read_only
        ]

    async def run(self) -> None:
        """Work until cancelled, or until the registry closes."""
        subscription = self._registry.subscribe(*(row.name for row in self._stored))
        try:
            async with asyncio.TaskGroup() as tasks:
                sweeping = tasks.create_task(self._findings.keep("events", self._sweep_events))
                async for events in batches(subscription, self._garbage.guard, self._guard):
                    await self._garbage.handle(events)
                    await self._handle_namespaces(events)
                    for event in events:
                        if event.type == "DELETED":
                            self._findings.gone(event.object)
                sweeping.cancel()
        finally:
            self._registry.unsubscribe(subscription)

    async def _handle_namespaces(self, events: list[Event]) -> None:
        touched: dict[str, None] = dict.fromkeys(self._guard.due())
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
                    await self._empty(name)
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

    async def _empty(self, namespace: str) -> None:
        """Delete everything in a terminating namespace, then let go of it."""
        contents = [
            (row.name, obj)
            for row in self._stored
            if row.resource.namespaced
            for obj in self._registry.list(row.name, namespace)
        ]
        contents += [
            (damaged.resource, damaged.stub)
            for damaged in self._registry.damaged
            if damaged.namespace == namespace and damaged.stub is not None
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

    async def _sweep_events(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self.forget_events(time.time() - EVENT_SECONDS)

    async def forget_events(self, before: float) -> None:
        """Delete the events that were last seen before a time (seconds since 1970)."""
        for event in self._registry.list(_EVENTS):
            seen = event.get("lastTimestamp") or event.get("eventTime")
            with self._guard.step(event, event["metadata"]["namespace"], "forgetting"):
                if unix(seen or event["metadata"]["creationTimestamp"]) < before:
                    await self._delete(_EVENTS, event)
