"""A pod as the cluster has it: its status is written, events are told, it is finally removed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from trainyard.kube.errors import NotFound
from trainyard.local.node import status
from trainyard.local.node.allocation import Node
from trainyard.local.node.status import Run
from trainyard.local.objects import Deletion


class PodObject:
    """``newest`` is the last version that the cluster has told of."""

    def __init__(self, node: Node, pod: dict[str, Any]) -> None:
        self._node = node
        self._warned: set[tuple[str, str]] = set()
        self.newest = pod
        self.started_at = time.time_ns()

    @property
    def uid(self) -> str:
        return str(self.newest["metadata"]["uid"])

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.newest["spec"]
        return spec

    @property
    def is_deleted(self) -> bool:
        return bool(self.newest["metadata"].get("deletionTimestamp"))

    @property
    def restart_policy(self) -> str:
        return str(self.spec.get("restartPolicy", "Always"))

    async def write_status(self, runs: Sequence[Run], told: status.Told) -> bool:
        """False when the pod is gone."""
        now = time.time_ns()

        def change(pod: dict[str, Any]) -> dict[str, Any] | None:
            if pod["metadata"]["uid"] != self.uid:
                return None
            old = pod.get("status", {})
            pod["status"] = status.pod_status(runs, told, old=old, now=now)
            return pod

        metadata = self.newest["metadata"]
        try:
            await self._node.api.update(
                "pods", metadata["namespace"], metadata["name"], change, subresource="status"
            )
        except NotFound:
            return False
        return True

    async def remove(self) -> None:
        """It has ended: let it go."""
        metadata = self.newest["metadata"]
        with contextlib.suppress(NotFound):
            await self._node.api.delete(
                "pods",
                metadata["namespace"],
                metadata["name"],
                Deletion(grace_seconds=0, uid=metadata["uid"]),
            )

    def tell(self, reason: str, message: str, kind: str = "Normal") -> None:
        """An event; ``kind`` is ``Normal`` or ``Warning``."""
        self._node.events.emit(self.newest, kind, reason, message)

    def warn(self, reason: str, message: str) -> None:
        """A Warning event, once for each text."""
        if (reason, message) not in self._warned:
            self._warned.add((reason, message))
            self.tell(reason, message, "Warning")
