"""Kubernetes Events on pods, written without holding up the pod."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from trainyard.local.objects import Objects
from trainyard.schema.errors import TrainyardError
from trainyard.schema.times import from_unix

_COMPONENT = "trainyard-node"
_log = logging.getLogger(__name__)


class EventWriter:
    """Queues events and writes them in order; losing one is not an error."""

    def __init__(self, api: Objects, node_name: str) -> None:
        self._api = api
        self._node_name = node_name
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._count = 0

    def emit(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """``kind`` is ``Normal`` or ``Warning``."""
        metadata = pod["metadata"]
        about = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
        self._put(about | {"uid": metadata["uid"]}, metadata["namespace"], kind, reason, message)

    def warn_owner(self, obj: Mapping[str, Any], reason: str, message: str) -> None:
        """A warning about an object that users do not look at, told to the one that owns it."""
        metadata = obj["metadata"]
        for owner in metadata.get("ownerReferences", ()):
            about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
            self._put(about, metadata["namespace"], "Warning", reason, message)

    def _put(
        self, about: Mapping[str, str], namespace: str, kind: str, reason: str, message: str
    ) -> None:
        now = from_unix()
        self._count += 1
        suffix = f"{time.time_ns():x}{self._count:x}"
        self._queue.put_nowait(
            {
                "metadata": {
                    "name": f"{about['name']}.{suffix}",
                    "namespace": namespace,
                },
                "involvedObject": {**about, "namespace": namespace},
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": _COMPONENT, "host": self._node_name},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "reportingComponent": _COMPONENT,
                "reportingInstance": self._node_name,
            }
        )

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._api.create("events", event)
            except TrainyardError as error:
                _log.debug("event not written: %s", error)
