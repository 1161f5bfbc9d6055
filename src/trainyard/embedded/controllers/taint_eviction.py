"""Ends pods that do not tolerate a NoExecute taint of their node, at once or after their time.

As the taint eviction controller of kube-controller-manager (pkg/controller/tainteviction).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from trainyard.embedded.cluster_objects import Deletion, Objects
from trainyard.embedded.disruption_target import with_disruption_target
from trainyard.embedded.scheduler.node_filters import tolerates
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.resources import NODES, PODS

_PODS, _NODES = PODS.full_name, NODES.full_name
_ENDED = ("Succeeded", "Failed")
_REASON = "DeletionByTaintManager"
_MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEviction:
    """Run beside the registry for as long as the cluster lives."""

    def __init__(self, objects: Objects, supervisor: Supervisor | None = None) -> None:
        self._objects = objects
        self._guard: RetryGuard[None] = RetryGuard("taints", supervisor)
        self._taints: dict[str, list[Object]] = {}
        """Taints with effect NoExecute, by node."""
        self._since: dict[str, float] = {}
        """When the tolerationSeconds of pods began (monotonic), by UID."""

    async def run(self) -> None:
        """Work until cancelled."""
        subscription = self._objects.subscribe(_NODES, _PODS)
        try:
            async for events in event_batches(subscription, self._guard):
                self._guard.due_retries()
                for event in events:
                    if event.resource == _NODES:
                        self._observe(event)
                await self._evict_due_pods()
        finally:
            self._objects.unsubscribe(subscription)

    def _observe(self, event: Event) -> None:
        node = event.object
        taints = (node.get("spec") or {}).get("taints") or ()
        found = [each for each in taints if each.get("effect") == "NoExecute"]
        self._taints.pop(node["metadata"]["name"], None)
        if found and event.type != "DELETED":
            self._taints[node["metadata"]["name"]] = found

    async def _evict_due_pods(self) -> None:
        now, before, wake = time.monotonic(), self._since, []
        self._since = {}
        for pod in self._objects.list(_PODS) if self._taints else ():
            taints = self._taints.get(pod["spec"].get("nodeName", ""))
            patience = None if taints is None or _is_over(pod) else _toleration_seconds(pod, taints)
            if patience is None:
                continue
            uid = pod["metadata"]["uid"]
            since = self._since[uid] = before.get(uid, now)
            if since + patience > now:
                wake.append(since + patience - now)
                continue
            with self._guard.step(pod, None):
                await self._evict(pod)
        self._guard.wake_in(min(wake, default=None))

    async def _evict(self, pod: Object) -> None:
        metadata = pod["metadata"]
        place = (_PODS, metadata["namespace"], metadata["name"])

        def change(found: Object) -> Object | None:
            if found["metadata"]["uid"] != metadata["uid"]:
                return None
            return with_disruption_target(found, _REASON, _MESSAGE)

        with suppress(NotFound, Conflict):
            await self._objects.update(*place, change, subresource="status")
            await self._objects.delete(*place, Deletion(uid=metadata["uid"]))


def _is_over(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in _ENDED or "deletionTimestamp" in pod["metadata"]


def _toleration_seconds(pod: Object, taints: Sequence[Object]) -> float | None:
    """Seconds for which a pod tolerates all taints; None: for ever."""
    tolerations = pod["spec"].get("tolerations") or ()
    seconds: list[int] = []
    for taint in taints:
        used = next((each for each in tolerations if tolerates([each], taint)), None)
        if used is None:
            return 0.0
        if (limit := used.get("tolerationSeconds")) is not None:
            seconds.append(max(0, limit))
    return float(min(seconds)) if seconds else None
