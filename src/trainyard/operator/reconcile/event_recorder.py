"""Sends Kubernetes Events about jobs in the background: a reconcile never waits for them.

A repeated event raises the count of the first one instead of making another, as Kubernetes' own
clients do. Events of one job are sent in order, those of several jobs in parallel, and all of them
give way to the requests of reconciles for a moment (decision 185).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import (
    AlreadyExists,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from trainyard.kube.resources import EVENTS
from trainyard.lifecycle.actions import Event
from trainyard.operator.metrics.instrumentation import Instrumentation
from trainyard.operator.reconcile.job_records import JobKey, JobRecord
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import render

log = logging.getLogger(__name__)

COMPONENT = "trainyard-controller"
_REMEMBERED = 4096
_MAX_WAITING = 50_000
"""Of all jobs; some 40 MB."""
_MANY_OF_A_JOB = 25
"""More waiting events of one job are combined; the number is client-go's burst per object."""
_SENDERS = 8
_YIELD_SECONDS = 2.0
"""For so long an event gives way to requests of reconciles."""
_RETRY_SECONDS = (0.5, 2.0, 8.0, 30.0)
_RETRIABLE = (ServerError, TooManyRequests, Unauthorized, Unreachable)
"""Errors after which an event is sent once more."""
_MAX_MESSAGE = 1024
_COMBINED = "(combined from similar events): "
"""In client-go's words (k8s.io/client-go/tools/record)."""
_WARNING_INTERVAL_SECONDS = 60.0


@dataclass(slots=True)
class _Series:
    """An event as it was sent last."""

    about: dict[str, str]
    event: Event
    name: str
    first: datetime
    last: datetime
    since: float
    """Since when it waits, by the loop's clock."""
    count: int = 1
    stored: bool = False
    waits: bool = False


class EventRecorder:
    """Sends events; `run` must be running for anything to be sent. `now` is the wall clock.

    `quiet(seconds)` returns once the server has little to do for us, or after so many seconds.
    """

    def __init__(
        self,
        client: Client,
        now: Callable[[], datetime],
        instrumentation: Instrumentation,
        quiet: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._now = now
        self._instrumentation = instrumentation
        self._quiet = quiet
        self._seen: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._jobs: dict[str, deque[_Series]] = {}
        """What waits, by the job's UID; a job is in `_ready`, or in a sender's hands."""
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._warned_at = -_WARNING_INTERVAL_SECONDS
        self.waiting = 0
        """Events that are yet to be sent."""
        self.lost = 0
        """Events that never will be: refused, or too many."""

    def emit(self, job: JobRecord, events: Iterable[Event]) -> None:
        """Queue events; returns at once."""
        for event in events:
            self._emit(job, event)

    def _emit(self, job: JobRecord, event: Event) -> None:
        event = _truncate(event)
        now, since = self._now(), asyncio.get_running_loop().time()
        key = (job.uid, event.type, event.reason, event.message)
        series = self._seen.get(key)
        if series is not None:
            self._seen.move_to_end(key)
            series.count += 1
            series.last = now
            series.about = _about(job)
        elif self._combine(job, event, now):
            return
        else:
            text = "\0".join((*key, now.isoformat()))
            digest = hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
            series = _Series(_about(job), event, f"{job.name}.{digest}", now, now, since)
            self._seen[key] = series
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        if not series.waits:
            series.since = since
            self._enqueue(job.uid, series)

    def _combine(self, job: JobRecord, event: Event, now: datetime) -> bool:
        """Whether many events of the job wait, and one of them now stands for this one too."""
        waiting = self._jobs.get(job.uid, ())
        if len(waiting) < _MANY_OF_A_JOB:
            return False
        for series in reversed(waiting):
            if (series.event.type, series.event.reason) == (event.type, event.reason):
                known = (job.uid, event.type, event.reason, series.event.message)
                self._seen.pop(known, None)
                series.event = _truncate(replace(event, message=_COMBINED + event.message))
                series.count += 1
                series.last = now
                return True
        return False

    def _enqueue(self, uid: str, series: _Series) -> None:
        if self.waiting >= _MAX_WAITING:
            self._lose(series, "overflow", f"{self.waiting} events wait already")
            return
        series.waits = True
        self.waiting += 1
        if uid not in self._jobs:
            self._jobs[uid] = deque()
            self._ready.put_nowait(uid)
        self._jobs[uid].append(series)

    async def run(self) -> None:
        """Send what is waiting, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(self._send_continuously())

    async def flush(self) -> None:
        """Send what is waiting now, and return."""
        await asyncio.gather(*(self._send_remaining() for _ in range(_SENDERS)))

    async def _send_continuously(self) -> None:
        while True:
            await self._send_first(await self._ready.get(), yields_to_reconciles=True)

    async def _send_remaining(self) -> None:
        while not self._ready.empty():
            await self._send_first(self._ready.get_nowait(), yields_to_reconciles=False)

    async def _send_first(self, uid: str, *, yields_to_reconciles: bool) -> None:
        """Send the oldest event of a job; the next job has its turn then."""
        waiting = self._jobs[uid]
        try:
            patience = waiting[0].since + _YIELD_SECONDS - asyncio.get_running_loop().time()
            if yields_to_reconciles and self._quiet is not None and patience > 0:
                await self._quiet(patience)
            series = waiting.popleft()
            series.waits = False
            self.waiting -= 1
            await self._send(series)
        finally:
            if waiting:
                self._ready.put_nowait(uid)
            else:
                del self._jobs[uid]

    async def _send(self, series: _Series) -> None:
        for delay in (*_RETRY_SECONDS, None):
            try:
                await self._store(series)
                return
            except KubeError as error:
                if delay is None or not isinstance(error, _RETRIABLE):
                    # Events are best effort everywhere in Kubernetes.
                    self._lose(series, "refused", str(error))
                    return
                await asyncio.sleep(delay)

    async def _store(self, series: _Series) -> None:
        namespace = series.about["namespace"]
        if series.stored:
            body = {"count": series.count, "lastTimestamp": render(series.last)}
            with suppress(NotFound):  # events expire, after an hour by default
                await self._client.patch(EVENTS, series.name, body, namespace)
                return
        with suppress(AlreadyExists):  # the answer to the first attempt was lost
            await self._client.create(EVENTS, _object(series), namespace)
        series.stored = True

    def _lose(self, series: _Series, reason: str, why: str) -> None:
        """Count it, and log that at most once a minute: thousands of lines would hide the rest."""
        self.lost += 1
        self._instrumentation.event_lost(reason)
        now = asyncio.get_running_loop().time()
        if now < self._warned_at + _WARNING_INTERVAL_SECONDS:
            return
        self._warned_at = now
        log.warning(
            "event %s is lost, as are %d in all: %s",
            *(series.event.reason, self.lost, why),
            extra={"job": _key(series)},
        )


def _truncate(event: Event) -> Event:
    """The event with a message within the API server's limit."""
    if len(event.message) <= _MAX_MESSAGE:
        return event
    return replace(event, message=event.message[: _MAX_MESSAGE - 1] + "…")


def _key(series: _Series) -> JobKey:
    about = series.about
    return JobKey(about["kind"], about["namespace"], about["name"])


def _about(job: JobRecord) -> dict[str, str]:
    return {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.kind,
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "resourceVersion": job.resource_version,
    }


def _object(series: _Series) -> dict[str, Any]:
    event = series.event
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": series.about["namespace"]},
        "involvedObject": series.about,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": series.count,
        "firstTimestamp": render(series.first),
        "lastTimestamp": render(series.last),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }
