"""Kubernetes Events about jobs, sent in the background: a pass never waits for them.

The same event again raises the count of the first one instead of making another, as Kubernetes'
own clients do. What happened often enough to hide everything else is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError, NotFound
from trainyard.kube.resources import EVENTS
from trainyard.lifecycle.actions import Event
from trainyard.operator.records import JobRecord
from trainyard.schema.times import render

log = logging.getLogger(__name__)

COMPONENT = "trainyard-controller"
_REMEMBERED = 4096
_MAX_WAITING = 10_000
_TOGETHER = 8
"""Sent at once: one by one they fall behind many short jobs, and what waits fills the memory."""
_MAX_MESSAGE = 1024


@dataclass(slots=True)
class _Series:
    """An event as it was sent last."""

    about: dict[str, str]
    event: Event
    name: str
    first: datetime
    last: datetime
    count: int = 1
    stored: bool = False


class Recorder:
    """Sends events; `run` must be running for anything to be sent. `now` is the wall clock."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now
        self._seen: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._waiting: asyncio.Queue[_Series] = asyncio.Queue(_MAX_WAITING)

    def emit(self, job: JobRecord, events: Iterable[Event]) -> None:
        """Note events; returns at once."""
        for event in events:
            self._emit(job, event)

    def _emit(self, job: JobRecord, event: Event) -> None:
        if len(event.message) > _MAX_MESSAGE:  # the API server's limit
            event = replace(event, message=event.message[: _MAX_MESSAGE - 1] + "…")
        now = self._now()
        key = (job.uid, event.type, event.reason, event.message)
        series = self._seen.get(key)
        if series is None:
            text = "\0".join((*key, now.isoformat()))
            digest = hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
            series = _Series(_about(job), event, f"{job.name}.{digest}", now, now)
            self._seen[key] = series
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(key)
            series.count += 1
            series.last = now
            series.about = _about(job)
        try:
            self._waiting.put_nowait(series)
        except asyncio.QueueFull:
            log.warning("%s/%s: event %s dropped", job.namespace, job.name, event.reason)

    async def run(self) -> None:
        """Send what is waiting, for ever."""
        while True:
            await self._send_some(await self._waiting.get())

    async def flush(self) -> None:
        """Send what is waiting now, and return."""
        while not self._waiting.empty():
            await self._send_some(self._waiting.get_nowait())

    async def _send_some(self, first: _Series) -> None:
        """Send it and a few of those that wait behind it, each once however often it waits."""
        some = {id(first): first}
        while len(some) < _TOGETHER and not self._waiting.empty():
            series = self._waiting.get_nowait()
            some[id(series)] = series
        await asyncio.gather(*map(self._send, some.values()))

    async def _send(self, series: _Series) -> None:
        namespace = series.about["namespace"]
        try:
            if series.stored:
                body = {"count": series.count, "lastTimestamp": render(series.last)}
                with suppress(NotFound):  # events expire, after an hour by default
                    await self._client.patch(EVENTS, series.name, body, namespace)
                    return
            await self._client.create(EVENTS, _object(series), namespace)
            series.stored = True
        except KubeError as error:
            # Events are best effort everywhere in Kubernetes.
            about, reason = series.about, series.event.reason
            log.info("%s/%s: event %s: %s", about["namespace"], about["name"], reason, error)


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
