"""A real API server as the node agent sees a cluster: local copies to read, requests to write."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.storage.journal import Event, Subscription
from trainyard.kube.client import Client
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

Object = dict[str, Any]
_BESIDE = (ENDPOINTS, SECRETS, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS)
_READ = {row.plural: row for row in (PODS, SERVICES, *_BESIDE)}
_EVERYWHERE = {row.plural: row for row in (NAMESPACES, NODES)}
_WRITTEN = {**_READ, "events": EVENTS}


class _Copy:
    """The objects of one resource, as its reflector tells them."""

    def __init__(self, resource: str, publish: Callable[[Event], None]) -> None:
        self._resource = resource
        self._publish = publish
        self.objects: dict[tuple[str, str], Object] = {}

    def replace(self, items: Sequence[Object], resource_version: str) -> None:
        present = {_key(item) for item in items}
        for key in self.objects.keys() - present:
            self.remove(self.objects[key])
        for item in items:
            self.upsert(item)

    def upsert(self, item: Object) -> None:
        kind = "MODIFIED" if _key(item) in self.objects else "ADDED"
        self.objects[_key(item)] = item
        self._publish(self.event(kind, item))

    def remove(self, item: Object) -> None:
        self.objects.pop(_key(item), None)
        self._publish(self.event("DELETED", item))

    def event(self, kind: str, item: Object) -> Event:
        return Event(kind, self._resource, item, None, b"", 0)


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class RealCluster:
    """Implements ``trainyard.embedded.cluster_objects.Objects`` for one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._subscriptions: dict[Subscription, tuple[str, ...]] = {}
        self._copies = {name: _Copy(name, self._publish) for name in _READ | _EVERYWHERE}
        self._reflectors = [
            Reflector(
                client,
                row,
                dict,
                self._copies[name],
                namespace=namespace if name in _READ else None,
            )
            for name, row in (_READ | _EVERYWHERE).items()
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the copies up to date, from when all of them are whole."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reflector.run()) for reflector in self._reflectors]
            for reflector in self._reflectors:
                await reflector.synced.wait()
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def _publish(self, event: Event) -> None:
        for subscription, resources in self._subscriptions.items():
            if event.resource in resources:
                subscription.publish(event)

    def get(self, resource: str, namespace: str, name: str) -> Object:
        found = self._copies[resource].objects.get((namespace, name))
        if found is None:
            raise NotFound(f"{resource} {name} not found", code=404, reason="NotFound")
        return found

    def list(self, resource: str, namespace: str | None = None) -> list[Object]:
        objects = self._copies[resource].objects
        return [objects[key] for key in sorted(objects) if namespace in (None, key[0])]

    def subscribe(self, *resources: str) -> Subscription:
        copies = [self._copies[name] for name in resources]
        backlog = [c.event("ADDED", item) for c in copies for item in c.objects.values()]
        subscription = Subscription(backlog)
        self._subscriptions[subscription] = resources
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)
        subscription.close()

    async def create(self, resource: str, obj: Object) -> Object:
        row = _WRITTEN[resource]
        return await self._client.create(
            row, {"apiVersion": row.api_version, "kind": row.kind, **obj}
        )

    async def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        change: Callable[[Object], Object | None],
        *,
        subresource: str = "",
    ) -> Object:
        row: Resource = _WRITTEN[resource]
        while True:
            old = await self._client.get(row, name, namespace)
            new = change(copy.deepcopy(old))
            if new is None or new == old:
                return old
            try:
                return await self._client.replace(row, new, subresource=subresource)
            except Conflict:
                continue

    async def delete(self, resource: str, namespace: str, name: str, how: Deletion) -> Object:
        row = _WRITTEN[resource]
        return await self._client.delete(
            row, name, namespace, grace_seconds=how.grace_seconds, uid=how.uid
        )
