"""One run of a job, watched to its end, with or without faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.api.chaos.chaos_cluster import BrokenCluster
from trainyard.api.chaos.chaos_injection import Lengths, Missed, Strikes
from trainyard.api.chaos.chaos_report import ChaosResult, Struck, digests
from trainyard.api.chaos.chaos_schedule import Fault, Planned
from trainyard.api.clusters import target_at
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_events import event_order, events_of
from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView
from trainyard.client.submission import StandIns, submit
from trainyard.embedded.node.containers.container_environment import host_name
from trainyard.kinds.shared.goodput.goodput_parts import seconds_by_part
from trainyard.kube.errors import NotFound, ServerError, TooManyRequests, Unreachable
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.manifest.reader import Document

_LOOK_SECONDS = 0.25
_WAIT_SECONDS = 0.1
_DEAF_SECONDS = 120.0
"""For which a cluster that was killed may not answer."""
_SETTLE_SECONDS = (1.0, 10.0)
"""Within which it shows that a fault has ended a replica; after a kill, which does as a rule."""
_NOT_WHOLE = ("creating", "pending", "failed", "unknown")
_MOST_SEEN = 200
"""Letters of what is told of an event."""
Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run."""

    documents: Sequence[Document]
    results: Sequence[str]
    """Files that are compared: `CLAIM:PATH`, or a path on this machine."""
    limit: float
    """Seconds after which a run is given up."""
    plan: Iterable[Planned] = ()
    lengths: Lengths = Lengths(10.0, 120.0)
    most: int | None = None
    """Faults; None: any number."""


class Trial:
    """One run on a cluster that is up."""

    def __init__(self, cluster: BrokenCluster, order: Order, announce: Announce) -> None:
        self._cluster, self._order, self._announce = cluster, order, announce
        self._strikes = Strikes(cluster, order.lengths, self._running)
        self.struck: list[Struck] = []
        self._job: Job | None = None
        self._pods: list[PodView] = []
        self._known: dict[str, int] = {}
        self._submitted = self._last_event_at = self._whole_since = time.monotonic()
        self._is_whole, self._is_torn = asyncio.Event(), asyncio.Event()

    async def run(self) -> ChaosResult:
        """Submit the job and see it to its end; raises TrainyardError where that cannot be."""
        async with target_at(self._cluster.socket, self._cluster.folder, None) as target:
            self._submitted = time.monotonic()
            [self._job] = await submit(target, self._order.documents, StandIns())
            hitting = asyncio.create_task(self._hit())
            try:
                while not self._job.is_over and self._age < self._order.limit:
                    if hitting.done():
                        hitting.result()
                    await asyncio.sleep(_LOOK_SECONDS)
                    await self._look(target)
            finally:
                hitting.cancel()
                await asyncio.wait({hitting})
            return self._result(self._job)

    @property
    def _age(self) -> float:
        return time.monotonic() - self._submitted

    # -- what is seen

    async def _look(self, target: ClusterTarget) -> None:
        """One look at the job; a cluster that was killed may take a while to answer again."""
        assert self._job is not None
        try:
            async with asyncio.timeout(_DEAF_SECONDS):
                job = self._job
                obj = await target.client.get(job.resource, job.name, job.namespace)
                self._job = Job(job.kind, obj)
                self._pods = await pods_of(target.client, self._job)
                events = await events_of(target.client, self._job)
        except NotFound as error:
            raise CommandError(f"{self._job} was deleted meanwhile") from error
        except (Unreachable, ServerError, TooManyRequests, TimeoutError) as error:
            if time.monotonic() - self._last_event_at > _DEAF_SECONDS:
                raise CommandError(f"the cluster does not answer any more: {error}") from error
            return
        self._last_event_at = time.monotonic()
        self._note(events)
        self._note_wholeness()

    def _note(self, events: Sequence[Mapping[str, Any]]) -> None:
        """What is new of the job, and what warns, belongs to the fault that came last."""
        assert self._job is not None
        for event in sorted(events, key=event_order):
            uid, count = event["metadata"]["uid"], event.get("count") or 1
            if self._known.get(uid) == count:
                continue
            self._known[uid] = count
            is_of_job = (event.get("involvedObject") or {}).get("uid") == self._job.uid
            if is_of_job and event.get("type") == "Warning" and self.struck:
                line = str(event.get("message") or "").partition("\n")[0][:_MOST_SEEN]
                text = f"{event.get('reason')}: {line}"
                if text not in self.struck[-1].seen:
                    self.struck[-1].seen.append(text)
                    self._announce(f"  {text}")

    def _note_wholeness(self) -> None:
        """Whether all replicas run; how long they did not."""
        assert self._job is not None
        counts = self._job.aggregate
        if counts.get("running") and not any(counts.get(each) for each in _NOT_WHOLE):
            if not self._is_whole.is_set():
                self._is_whole.set()
                self._whole_since = time.monotonic()
                self._is_torn.clear()
                if self.struck and self.struck[-1].recovered is None:
                    self.struck[-1].recovered = round(self._age - self.struck[-1].at, 3)
        else:
            self._is_whole.clear()
            self._is_torn.set()

    def _running(self) -> dict[str, str]:
        return running_hosts(self._pods)

    # -- what is done

    async def _hit(self) -> None:
        await self._is_whole.wait()
        due, before = time.monotonic(), 0.0
        for number, planned in enumerate(self._order.plan):
            if number == self._order.most:
                return
            gap, before = planned.after - before, planned.after
            due = await self._await_moment(due + gap, gap / 2)
            await self._strike(planned)
            with suppress(TimeoutError):  # what follows from it is not to be taken for the next's
                async with asyncio.timeout(_SETTLE_SECONDS[planned.fault == Fault.KILL]):
                    await self._is_torn.wait()

    async def _await_moment(self, due: float, quiet: float) -> float:
        """When it is due, but not before all replicas have run for `quiet` seconds: a job that is
        slow to come back would else never get anywhere."""
        while True:
            await self._is_whole.wait()
            due = max(due, self._whole_since + quiet)
            if (rest := due - time.monotonic()) <= 0:
                return due
            await asyncio.sleep(rest)

    async def _strike(self, planned: Planned) -> None:
        """As soon as there is somebody to hit."""
        while True:
            struck = Struck(round(self._age, 3), planned.fault)
            self.struck.append(struck)
            try:
                await self._strikes.strike(struck, planned.draw)
            except Missed:
                self.struck.remove(struck)
                await asyncio.sleep(_WAIT_SECONDS)
            else:
                self._announce(f"  at {struck.at:.1f} s: {struck.fault} {struck.target}")
                return

    # -- what came of it

    def _result(self, job: Job) -> ChaosResult:
        progress = job.progress
        is_over = job.is_over
        return ChaosResult(
            phase=job.phase,
            seconds=round(self._age, 3),
            restarts=job.restarts,
            message=job.failure if is_over else f"given up after {self._order.limit:.0f} s",
            goodput=dict(seconds_by_part(job.status)),
            files=digests((name, self._path(name, job)) for name in self._order.results),
            step=progress.get("step"),
            metrics={each["name"]: each["value"] for each in progress.get("metrics") or ()},
        )

    def _path(self, name: str, job: Job) -> Path:
        claim, colon, path = name.partition(":")
        if not colon:
            return Path(name)
        return self._cluster.folder_of(job.namespace, claim) / path.lstrip("/")


def running_hosts(pods: Iterable[PodView]) -> dict[str, str]:
    """The replicas that run, by their pods' host names: those of some kinds are not the pods'."""
    return {host_name(pod.obj): pod.replica for pod in pods if pod.phase == "Running"}
