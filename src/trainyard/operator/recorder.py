"""Kubernetes Events about jobs, sent in the background: a pass never waits for them.

The same event again raises the count of the first one instead of making another, as Kubernetes'
own clients do. What happened often enough to hide everything else is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError, NotFound
from trainyard.kube.resources import EVENTS
from trainyard.schema.times import render

log = logging.getLogger(__name__)

COMPONENT = "trainyard-controller"
_REMEMBERED = 4096
_MAX_WAITING = 10_000
_MAX_MESSAGE = 1024


class Subject(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str


@dataclass(slots=True)
class _Series:
    """An event as it was sent last."""

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
        self._waiting: asyncio.Queue[tuple[Subject, str, str, str, _Series]] = asyncio.Queue(
            _MAX_WAITING
        )

    def emit(self, subject: Subject, type_: str, reason: str, message: str) -> None:
        """Note an event of `type_` Normal or Warning; returns at once."""
        if len(message) > _MAX_MESSAGE:  # the API server's limit
            message = message[: _MAX_MESSAGE - 1] + "…"
        now = self._now()
        key = (subject.uid, type_, reason, message)
        series = self._seen.get(key)
        if series is None:
            digest = hashlib.blake2s(
                "\0".join((*key, now.isoformat())).encode(), digest_size=8
            ).hexdigest()
            series = self._seen[key] = _Series(f"{subject.name}.{digest}", now, now)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(key)
            series.count += 1
            series.last = now
        try:
            self._waiting.put_nowait((subject, type_, reason, message, series))
        except asyncio.QueueFull:
            log.warning("%s/%s: event %s dropped", subject.namespace, subject.name, reason)

    async def run(self) -> None:
        """Send what is waiting, for ever."""
        while True:
            await self._send_logged(*await self._waiting.get())

    async def flush(self) -> None:
        """Send what is waiting now, and return."""
        while not self._waiting.empty():
            await self._send_logged(*self._waiting.get_nowait())

    async def _send_logged(
        self, subject: Subject, type_: str, reason: str, message: str, series: _Series
    ) -> None:
        try:
            await self._send(subject, type_, reason, message, series)
        except KubeError as error:
            # Events are best effort everywhere in Kubernetes.
            log.info("%s/%s: event %s: %s", subject.namespace, subject.name, reason, error)

    async def _send(
        self, subject: Subject, type_: str, reason: str, message: str, series: _Series
    ) -> None:
        if series.stored:
            body = {"count": series.count, "lastTimestamp": render(series.last)}
            try:
                await self._client.patch(EVENTS, series.name, body, subject.namespace)
                return
            except NotFound:
                pass  # events expire, after an hour by default
        await self._client.create(
            EVENTS, _event(subject, type_, reason, message, series), subject.namespace
        )
        series.stored = True


def _event(
    subject: Subject, type_: str, reason: str, message: str, series: _Series
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": subject.namespace},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
            "resourceVersion": subject.resource_version,
        },
        "type": type_,
        "reason": reason,
        "message": message,
        "count": series.count,
        "firstTimestamp": render(series.first),
        "lastTimestamp": render(series.last),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }
