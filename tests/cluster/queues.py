"""Kueue's controllers, played against the real API server, whose Workloads are the published ones.

A webhook would need a server of its own; what it would refuse is noted in `problems` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from tests.cluster.yard import Object, Yard, until
from tests.queueing.definitions import published
from tests.queueing.kueue import FLAVOR, Invalid, Kueue
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kinds.shared.scheduling.kueue_workload import FLAVORS, WORKLOADS
from trainyard.kube.errors import AlreadyExists, Conflict, NotFound
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainyard.operator.gang_detection import served_gang_schedulers

_EVERY_SECONDS = 0.1


async def install(yard: Yard, definitions: list[Object]) -> None:
    """Have the server serve what is defined."""
    for definition in definitions:
        with suppress(AlreadyExists):
            await yard.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        name = definition["metadata"]["name"]
        await until(lambda name=name: _definition(yard, name), _is_established)


async def remove(yard: Yard, definitions: list[Object]) -> None:
    """Have it serve that no more."""
    for definition in definitions:
        with suppress(NotFound):
            name = definition["metadata"]["name"]
            await yard.client.delete(CUSTOM_RESOURCE_DEFINITIONS, name)


async def found(yard: Yard) -> list[GangBackend]:
    """What an operator would find served."""
    return [backend async for backend, _ in served_gang_schedulers(yard.client)]


async def _definition(yard: Yard, name: str) -> Object:
    return await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)


def _is_established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class Queues:
    """Takes Kueue's turns in one namespace."""

    def __init__(self, yard: Yard, kueue: Kueue) -> None:
        self._yard = yard
        self.kueue = kueue
        self.problems: list[str] = []
        self._seen: dict[str, Object] = {}

    @property
    def has_requeued(self) -> bool:
        """Whether a Workload had to go since its pods were late."""
        return any((each.get("status") or {}).get("requeueState") for each in self._seen.values())

    async def workloads(self) -> list[Object]:
        """All of the namespace."""
        items, _ = await self._yard.client.list(WORKLOADS, self._yard.namespace)
        return items

    async def usage(self) -> int:
        """Pods' worth of quota that is taken."""
        return self.kueue.usage(await self.workloads())

    async def run(self) -> None:
        """Until cancelled."""
        with suppress(AlreadyExists):
            await self._yard.client.create(FLAVORS, FLAVOR)
        while True:
            found = await self.workloads()
            self._review(found)
            now = datetime.now(UTC).replace(microsecond=0)
            for each in list(self.kueue.turn(found, now)):
                body = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, **each}
                with suppress(Conflict, NotFound):
                    stored = await self._yard.client.replace(WORKLOADS, body, subresource="status")
                    self._seen[stored["metadata"]["uid"]] = stored
            await asyncio.sleep(_EVERY_SECONDS)

    def _review(self, found: list[Object]) -> None:
        for each in found:
            uid = each["metadata"]["uid"]
            try:
                self.kueue.review(self._seen.get(uid), each)
            except Invalid as problem:
                self.problems.append(f"{each['metadata']['name']}: {problem}")
            self._seen[uid] = each


@asynccontextmanager
async def running_kueue(yard: Yard, kueue: Kueue) -> AsyncIterator[Queues]:
    """Kueue at work, whose webhook has had nothing to refuse by the end."""
    await install(yard, published("kueue"))
    queues = Queues(yard, kueue)
    task = asyncio.create_task(queues.run())
    try:
        yield queues
    finally:
        task.cancel()
        await asyncio.wait([task])
        # Else the operators of other tests would find it.
        await remove(yard, published("kueue"))
        await until(lambda: found(yard), lambda now: not now)
    if not task.cancelled():
        task.result()
    assert queues.problems == []
