"""What is there, now and after every change: the one watcher, on `kube.reflector`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from trainyard.client.job_view import Job
from trainyard.client.object_views import Object
from trainyard.kinds.kind import Kind
from trainyard.kinds.shared.labels import selector
from trainyard.kube.client import EVERYTHING, Client, Selection
from trainyard.kube.errors import NotFound
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import PODS, Resource
from trainyard.schema.dataclass import dataclass


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
        retries_errors=is_patient,
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


async def watch_jobs(
    client: Client,
    kinds: Sequence[Kind],
    namespace: str | None,
    wanted: str,
    present: Sequence[Job],
) -> AsyncGenerator[list[Job]]:
    """Those of some kinds that have changed since they were `present`, again and again.

    Of all namespaces where it is None; `wanted` selects by labels. One that was deleted comes a
    last time. A kind that is not served has no jobs.
    """
    arrived: asyncio.Queue[list[Job] | None] = asyncio.Queue()

    async def follow_kind(kind: Kind) -> None:
        known = {job.uid: job for job in present if job.kind is kind}
        states = watch(client, kind.resource, namespace, Selection(wanted))
        with contextlib.suppress(NotFound):
            async with contextlib.aclosing(states):
                async for state in states:
                    if changed := list(_changed(kind, known, state)):
                        arrived.put_nowait(changed)

    tasks = [asyncio.create_task(follow_kind(kind)) for kind in kinds]
    for task in tasks:
        task.add_done_callback(lambda _: arrived.put_nowait(None))
    try:
        while not all(task.done() for task in tasks) or not arrived.empty():
            if (jobs := await arrived.get()) is not None:
                yield jobs
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _changed(kind: Kind, known: dict[str, Job], state: Snapshot) -> Iterator[Job]:
    """What is another than it was known, which is brought up to date."""
    gone = [Job.listed(kind, obj) for obj in state.gone if obj["metadata"]["uid"] in known]
    known_gone = {job.uid for job in gone}  # others were deleted before the watch began
    gone += [
        job for uid, job in known.items() if uid not in state.present and uid not in known_gone
    ]
    for job in gone:
        del known[job.uid]
        job.is_deleted = True
        yield job
    for obj in state.changed:
        job = Job.listed(kind, obj)
        before = known.get(job.uid)
        if before is None or before.version != job.version:
            known[job.uid] = job
            yield job
