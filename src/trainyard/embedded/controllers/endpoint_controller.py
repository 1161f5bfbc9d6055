"""Writes the Endpoints and EndpointSlices of Services, as kube-controller-manager does.

Nothing here waits for them: connections follow the pods themselves. So changes that come together
are written once, and the loop rests ten times as long as it worked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from trainyard.embedded.cluster_objects import Deletion, Objects
from trainyard.embedded.controllers import endpoint_slices as objects
from trainyard.embedded.service_endpoints import (
    CONTROLLER_LABEL,
    EndpointIndex,
    Key,
    is_controller_written,
)
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kube.errors import AlreadyExists, Forbidden, NotFound
from trainyard.kube.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES

_PODS, _SERVICES = PODS.full_name, SERVICES.full_name
_ENDPOINTS, _SLICES = ENDPOINTS.full_name, ENDPOINT_SLICES.full_name
_REST_SECONDS, _REST_SHARE, _MOST_REST_SECONDS = 0.2, 10, 2.0
_TOGETHER = 64
"""Services that are written at once; they share commits."""
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"


class EndpointController:
    """Run beside the registry for as long as the cluster lives."""

    def __init__(self, api: Objects, supervisor: Supervisor | None = None) -> None:
        self._api = api
        self._guard: RetryGuard[Key] = RetryGuard("endpoints", supervisor)
        self._index = EndpointIndex()
        self._slices: dict[Key, dict[str, Object]] = {}
        """Of each Service those that this controller manages, by name."""
        self._written: dict[Key, str] = {}
        """resourceVersions of Endpoints that this controller wrote last."""

    async def run(self) -> None:
        """Work until cancelled."""
        # Slices first: what there is already is not made a second time.
        subscription = self._api.subscribe(_SLICES, _SERVICES, _PODS, _ENDPOINTS)
        self._index, self._slices = EndpointIndex(), {}
        try:
            async for events in event_batches(subscription, self._guard):
                touched = dict.fromkeys(self._guard.due_retries())
                for event in events:
                    touched |= dict.fromkeys(self._observe(event))
                started = time.process_time()
                keys = list(touched)
                for start_at in range(0, len(keys), _TOGETHER):
                    await asyncio.gather(
                        *map(self._reconcile, keys[start_at : start_at + _TOGETHER])
                    )
                if keys:
                    rest = _REST_SHARE * (time.process_time() - started)
                    await asyncio.sleep(min(max(_REST_SECONDS, rest), _MOST_REST_SECONDS))
        finally:
            self._api.unsubscribe(subscription)

    def _observe(self, event: Event) -> Iterable[Key]:
        """Take in a change; returns the Services that it affects."""
        if event.resource in (_PODS, _SERVICES):
            return self._index.observe(event)
        metadata = event.object["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if event.resource == _ENDPOINTS:
            is_own = self._written.get((namespace, name)) == metadata["resourceVersion"]
            return () if is_own else ((namespace, name),)
        labels = metadata.get("labels") or {}
        key = (namespace, labels.get(objects.SERVICE_NAME, ""))
        if labels.get(objects.MANAGED_BY) not in (objects.SLICES, objects.MIRROR):
            return ()
        own = self._slices.setdefault(key, {})
        known = own.get(name)
        if event.type == "DELETED":
            own.pop(name, None)
            if not own:
                del self._slices[key]
        elif known is None or int(known["metadata"]["resourceVersion"]) < event.revision:
            own[name] = event.object
        else:
            return ()
        return (key,)

    async def _reconcile(self, key: Key) -> None:
        service = self._index.services.get(key)
        with self._guard.step(service or _named(key), key):
            await self._write(key, service)

    async def _write(self, key: Key, service: Object | None) -> None:
        """Bring the Endpoints and slices of a Service up to date."""
        if service is None:
            await self._delete_endpoints(key)
        elif service["spec"].get("type") == "ExternalName":
            return
        elif service["spec"].get("selector"):
            found = self._index.endpoints_of(service)
            subsets = objects.endpoint_subsets(service, found)
            await self._write_endpoints(key, service, subsets)
            groups = objects.endpoint_groups(service, found)
            await self._write_slices(key, service, service, groups, objects.SLICES)
        else:
            await self._mirror(key, service)

    async def _delete_endpoints(self, key: Key) -> None:
        """The Service is gone; slices are collected as what it owned."""
        self._written.pop(key, None)
        with suppress(NotFound):
            found = self._api.get(_ENDPOINTS, *key)
            if is_controller_written(found):
                await self._api.delete(_ENDPOINTS, *key, Deletion(uid=found["metadata"]["uid"]))

    async def _write_endpoints(self, key: Key, service: Object, subsets: list[Object]) -> None:
        labels = {**objects.service_labels(service), **CONTROLLER_LABEL}

        def change(found: Object) -> Object:
            found["metadata"]["labels"] = labels
            found.pop("subsets", None)
            return {**found, "subsets": subsets} if subsets else found

        try:
            present = self._api.get(_ENDPOINTS, *key)
            if (present.get("subsets") or [], present["metadata"].get("labels")) == (
                subsets,
                labels,
            ):
                return
            made = await self._api.update(_ENDPOINTS, *key, change)
        except NotFound:
            new = change({"metadata": {"namespace": key[0], "name": key[1]}})
            try:
                made = await self._api.create(_ENDPOINTS, new)
            except (AlreadyExists, Forbidden):  # looked at again; the namespace is being emptied
                return
        self._written[key] = made["metadata"]["resourceVersion"]

    async def _mirror(self, key: Key, service: Object) -> None:
        """Somebody's own Endpoints, which a Service without a selector leads to, as slices."""
        try:
            endpoints = self._api.get(_ENDPOINTS, *key)
        except NotFound:
            return
        metadata = endpoints["metadata"]
        is_skipped = (metadata.get("labels") or {}).get(_SKIP_MIRROR) == "true"
        if is_skipped or _LEADER in (metadata.get("annotations") or {}):
            return
        groups = objects.mirrored_groups(endpoints)
        await self._write_slices(key, endpoints, service, groups, objects.MIRROR)

    async def _write_slices(
        self,
        key: Key,
        owner: Object,
        service: Object,
        groups: list[objects.EndpointGroup],
        manager: str,
    ) -> None:
        present = {
            name: {"ports": [], "endpoints": [], **each}
            for name, each in self._slices.get(key, {}).items()
            if each["metadata"]["labels"][objects.MANAGED_BY] == manager
        }
        metadata = objects.slice_metadata(owner, service, manager)
        kept, new = objects.plan_slices(groups, present)
        for name, wanted in kept.items():
            if not _is_current(present[name], wanted, metadata["labels"]):
                await self._change_slice(key, name, wanted, metadata["labels"])
        for name in present.keys() - kept.keys():
            self._slices[key].pop(name, None)
            with suppress(NotFound):
                await self._api.delete(_SLICES, key[0], name)
        for wanted in new:
            with suppress(AlreadyExists, Forbidden):
                made = await self._api.create(_SLICES, {"metadata": {**metadata}, **wanted})
                self._slices.setdefault(key, {})[made["metadata"]["name"]] = made

    async def _change_slice(
        self, key: Key, name: str, wanted: Object, labels: Mapping[str, str]
    ) -> None:
        def change(found: Object) -> Object:
            found["metadata"]["labels"] = dict(labels)
            return {**found, **wanted}

        with suppress(NotFound):
            self._slices[key][name] = await self._api.update(_SLICES, key[0], name, change)


def _is_current(present: Object, wanted: Object, labels: Mapping[str, str]) -> bool:
    has = all(present[field] == value for field, value in wanted.items())
    return has and present["metadata"]["labels"] == labels


def _named(key: Key) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"namespace": key[0], "name": key[1]}}
