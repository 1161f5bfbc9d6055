"""Writes events about scheduling, once per object and cause."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_objects import Objects
from trainyard.kube.resources import EVENTS
from trainyard.schema.errors import TrainyardError

_log = logging.getLogger(__name__)
_REMEMBERED = 10_000
_COMPONENT = "trainyard-scheduler"


class SchedulingEvents:
    """Writes core/v1 Events into the registry."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._sent: dict[tuple[str, str, str], None] = {}

    async def warn(
        self, object_reference: Mapping[str, Any], reason: str, message: str, *, topic: str = ""
    ) -> None:
        """Warn about the object that `reference` names, once for each message or `topic`."""
        key = (topic or object_reference["uid"], reason, "" if topic else message)
        if key in self._sent:
            return
        self._sent[key] = None
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        now = now_text()
        name = f"{object_reference['name']}.{uuid.uuid4().hex[:16]}"
        namespace = object_reference.get("namespace") or "default"
        await self._write(
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": dict(object_reference),
                "type": "Warning",
                "reason": reason,
                "message": message,
                "source": {"component": _COMPONENT},
                "reportingComponent": _COMPONENT,
                "reportingInstance": _COMPONENT,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )

    async def _write(self, event: Mapping[str, Any]) -> None:
        try:
            await self._objects.create(EVENTS.full_name, dict(event))
        except TrainyardError as error:  # a full disk, a namespace that goes: not worth more
            _log.debug("event not written: %s", error)


def object_reference(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The involvedObject of an event about ``obj``."""
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def owner_reference(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The job that the pod belongs to, or the pod itself."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return object_reference(
                owner | {"metadata": owner | {"namespace": metadata["namespace"]}}
            )
    return object_reference(pod)
