"""The pod's object in the API: writes its status and events, and removes it at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_objects import Deletion, Objects
from trainyard.embedded.node.pods import pod_status
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.kube.errors import NotFound
from trainyard.schema.errors import TrainyardError

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
        about = {"apiVersion": "v1", "kind": "Pod"}
        about |= {key: pod["metadata"][key] for key in ("name", "uid", "namespace")}
        self._put(about, kind, reason, message)

    def warn(self, obj: Mapping[str, Any], reason: str, message: str) -> None:
        """A warning about any object."""
        metadata = obj["metadata"]
        about = {key: obj.get(key, "") for key in ("apiVersion", "kind")}
        about |= {key: metadata.get(key, "") for key in ("name", "uid", "namespace")}
        self._put(about, "Warning", reason, message)

    def warn_owner(self, obj: Mapping[str, Any], reason: str, message: str) -> None:
        """A warning about an object, written to its owners, which users look at, if it has any."""
        metadata = obj["metadata"]
        if not metadata.get("ownerReferences"):
            self.warn(obj, reason, message)
        for owner in metadata.get("ownerReferences", ()):
            about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
            about["namespace"] = metadata["namespace"]
            self._put(about, "Warning", reason, message)

    def _put(self, about: Mapping[str, str], kind: str, reason: str, message: str) -> None:
        now = now_text()
        self._count += 1
        self._queue.put_nowait(
            {
                "metadata": {
                    "name": f"{about['name']}.{time.time_ns():x}{self._count:x}",
                    "namespace": about["namespace"] or "default",
                },
                "involvedObject": about,
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
        """Write queued events until cancelled; one that is refused is dropped."""
        while True:
            event = await self._queue.get()
            try:
                await self._api.create("events", event)
            except TrainyardError as error:
                _log.debug("event not written: %s", error)


class PodObject:
    """``latest`` is the newest version that was observed."""

    def __init__(self, api: Objects, events: EventWriter, pod: dict[str, Any]) -> None:
        self._api = api
        self._events = events
        self._warned: set[tuple[str, str]] = set()
        self.latest = pod
        self.started_at = time.time_ns()
        self._began = time.monotonic()

    def adopt(self, started_at: int) -> None:
        """Take it over from an earlier cluster, under which it started (nanoseconds)."""
        self._began -= max(0.0, (self.started_at - started_at) / 1e9)
        self.started_at = started_at

    @property
    def age_seconds(self) -> float:
        """For how long it has been on this node, however the time of day is set meanwhile."""
        return time.monotonic() - self._began

    @property
    def uid(self) -> str:
        return str(self.latest["metadata"]["uid"])

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.latest["spec"]
        return spec

    @property
    def is_deleted(self) -> bool:
        return bool(self.latest["metadata"].get("deletionTimestamp"))

    @property
    def terminal_phase(self) -> str:
        """The terminal phase in its status; "" while there is none.

        An eviction, for one, may have written it: the pod is then stopped, as the kubelet does
         (`UpdatePod` in pkg/kubelet/pod_workers.go). Decision 106.
        """
        phase = str((self.latest.get("status") or {}).get("phase", ""))
        return phase if phase in pod_status.ENDED else ""

    @property
    def restart_policy(self) -> str:
        return str(self.spec.get("restartPolicy", "Always"))

    async def write_status(
        self, runs: Sequence[ContainerRun], fields: pod_status.PodStatusFields
    ) -> bool:
        """False when the pod is gone."""
        now = time.time_ns()
        seen = self.latest.get("status", {})
        made = pod_status.pod_status(runs, fields, old=seen, now=now)
        if seen and made == seen:
            return True  # another write since would still be observed

        def change(pod: dict[str, Any]) -> dict[str, Any] | None:
            if pod["metadata"]["uid"] != self.uid:
                return None
            old = pod.get("status", {})
            if old == seen:
                pod["status"] = made
            else:
                pod["status"] = pod_status.pod_status(runs, fields, old=old, now=now)
            return pod

        metadata = self.latest["metadata"]
        try:
            await self._api.update(
                "pods", metadata["namespace"], metadata["name"], change, subresource="status"
            )
        except NotFound:
            return False
        return True

    async def restore_status(self, fields: Mapping[str, Any]) -> None:
        """Write the status of an ended pod again after a client has put back another phase."""

        def change(pod: dict[str, Any]) -> dict[str, Any] | None:
            phase = (pod.get("status") or {}).get("phase")
            if pod["metadata"]["uid"] != self.uid or phase in pod_status.ENDED:
                return None
            return {**pod, "status": dict(fields)}

        metadata = self.latest["metadata"]
        with contextlib.suppress(NotFound):
            await self._api.update(
                "pods", metadata["namespace"], metadata["name"], change, subresource="status"
            )

    async def remove(self) -> None:
        """Delete the object of a pod that has ended."""
        metadata = self.latest["metadata"]
        with contextlib.suppress(NotFound):
            deletion = Deletion(grace_seconds=0, uid=metadata["uid"])
            await self._api.delete("pods", metadata["namespace"], metadata["name"], deletion)

    def emit_event(self, reason: str, message: str, kind: str = "Normal") -> None:
        """An event; ``kind`` is ``Normal`` or ``Warning``."""
        self._events.emit(self.latest, kind, reason, message)

    def warn(self, reason: str, message: str) -> None:
        """A Warning event, once for each text."""
        if (reason, message) not in self._warned:
            self._warned.add((reason, message))
            self.emit_event(reason, message, "Warning")
