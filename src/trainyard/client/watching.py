"""What is there, now and after every change: the one watcher, on `kube.reflector`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.client.job import Job
from trainyard.client.objects import Object
from trainyard.kinds.shared.labels import selector
from trainyard.kube.client import EVERYTHING, Client, Selection
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import PODS, Resource


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What has changed, and what there is."""

    present: Mapping[str, Object]
    """By UID; as of now, which may be later than the change."""
    changed: Sequence[Object] = ()
    """Those that are new, or not as they were."""
    gone: Sequence[Object] = ()
    """The last state of those that were deleted."""


class _Snapshots:
    """The reflector's sink: keeps one snapshot per change until it is fetched."""

    def __init__(self) -> None:
        self._present: dict[str, Object] = {}
        self.queue: asyncio.Queue[Snapshot | None] = asyncio.Queue()

    def replace(self, items: Sequence[Object], resource_version: str) -> None:
        before, self._present = self._present, {item["metadata"]["uid"]: item for item in items}
        changed = [item for uid, item in self._present.items() if before.get(uid) != item]
        self._put(changed, [item for uid, item in before.items() if uid not in self._present])

    def upsert(self, item: Object) -> None:
        self._present[item["metadata"]["uid"]] = item
        self._put([item], [])

    def remove(self, item: Object) -> None:
        self._present.pop(item["metadata"]["uid"], None)
        self._put([], [item])

    def _put(self, changed: Sequence[Object], gone: Sequence[Object]) -> None:
        self.queue.put_nowait(Snapshot(self._present, changed, gone))


async def watch(
    client: Client,
    resource: Resource,
    namespace: str | None,
    which: Selection = EVERYTHING,
    *,
    is_patient: bool = False,
) -> AsyncGenerator[Snapshot]:
    """The selected objects now, and after every change; never ends by itself.

    A server that refuses or does not answer is an error, unless `is_patient`: then it is asked
    again until it does.
    """
    sink = _Snapshots()
    reflector = Reflector(
        client,
        resource,
        lambda obj: obj,
        sink,
        namespace=namespace,
        which=which,
        is_patient=is_patient,
    )
    reflecting = asyncio.create_task(reflector.run())
    reflecting.add_done_callback(lambda _: sink.queue.put_nowait(None))
    try:
        while (snapshot := await sink.queue.get()) is not None:
            yield snapshot
        reflecting.result()
    finally:
        reflecting.cancel()
        await asyncio.gather(reflecting, return_exceptions=True)


def watch_pods(client: Client, job: Job) -> AsyncGenerator[Snapshot]:
    """The pods of a job."""
    return watch(client, PODS, job.namespace, Selection(selector(job.uid)))


async def follow(client: Client, job: Job) -> AsyncGenerator[Job | None]:
    """The job now and after every change; None once it is deleted."""
    states = watch(client, job.resource, job.namespace, Selection(name=job.name))
    async with contextlib.aclosing(states):
        async for state in states:
            for obj in state.changed:
                if obj["metadata"]["uid"] == job.uid:
                    yield Job.listed(job.kind, obj)
            if job.uid not in state.present:
                yield None
