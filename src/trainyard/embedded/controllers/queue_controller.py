"""Keeps the status of Queues and PodGroups, and ends pods that outlive their Queue's maxDuration.

The scheduler does not read these statuses; they are for users only.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.cluster_objects import Deletion, Objects
from trainyard.embedded.disruption_target import with_disruption_target
from trainyard.embedded.scheduler.node_info import PodEntry
from trainyard.embedded.scheduler.pod_group_rules import PodGroupRules
from trainyard.embedded.scheduler.queue_limits import QueueLimits
from trainyard.embedded.scheduler.resource_requests import PODS, format_amount, total
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kube import resources
from trainyard.kube.embedded_contract import QUEUE_MAX_DURATION
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import Resource
from trainyard.schema.times import unix

_PODS = resources.PODS.full_name
_REST_SECONDS = 0.2
"""A burst of changes is counted once."""
_ENDED = ("Succeeded", "Failed")
_STATES = ("pending", "running", "succeeded", "failed", "unknown")


class QueueController:
    """Run beside the scheduler for as long as the cluster lives."""

    def __init__(
        self, objects: Objects, extension: Extension, supervisor: Supervisor | None = None
    ) -> None:
        """``extension`` must name kinds of queues and groups."""
        assert extension.queues is not None
        self._extension, self._kinds = extension, extension.queues
        self._queue_resource = extension.queues.queues.full_name
        self._group_resource = extension.queues.groups.full_name
        self._member_labels = {extension.queues.queue_label, extension.queues.group_label}
        self._objects = objects
        self._guard: RetryGuard[Event | None] = RetryGuard("queues", supervisor)
        self._pods: dict[str, PodEntry] = {}
        self._began: dict[str, float] = {}
        """When each pod was created, by a clock that only goes on, by UID."""
        self._queues: dict[str, QueueLimits] = {}
        self._groups: dict[tuple[str, str], PodGroupRules] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        subscription = self._objects.subscribe(_PODS, self._queue_resource, self._group_resource)
        try:
            async for events in event_batches(subscription, self._guard):
                again = [event for event in self._guard.due_retries() if event is not None]
                for event in (*again, *events):
                    with self._guard.step(event.object, event):
                        self._observe(event)
                self._guard.wake_in(await self._end_old_pods())
                await self._write_statuses()
                await asyncio.sleep(_REST_SECONDS)
        finally:
            self._objects.unsubscribe(subscription)

    def _observe(self, event: Event) -> None:
        obj, metadata, is_gone = event.object, event.object["metadata"], event.type == "DELETED"
        if event.resource == _PODS:
            self._pods.pop(metadata["uid"], None)
            if is_gone:
                self._began.pop(metadata["uid"], None)
            if not is_gone and self._member_labels.intersection(metadata.get("labels") or ()):
                entry = PodEntry.from_pod(obj, self._extension)
                self._pods[metadata["uid"]] = replace(entry, raw=_head(obj))
                age = max(0.0, time.time() - unix(entry.created))
                self._began.setdefault(entry.uid, time.monotonic() - age)
        elif event.resource == self._queue_resource:
            self._queues.pop(metadata["name"], None)
            if not is_gone:
                self._queues[metadata["name"]] = QueueLimits.from_object(obj)
        else:
            key = (metadata["namespace"], metadata["name"])
            self._groups.pop(key, None)
            if not is_gone:
                self._groups[key] = PodGroupRules.from_object(obj, self._kinds.default_queue)

    async def _end_old_pods(self) -> float | None:
        """Delete what is too old; the seconds until the next pod is (decision 36)."""
        limits = {
            rules.name: rules.max_duration.total_seconds()
            for rules in self._queues.values()
            if rules.max_duration is not None
        }
        next_end: float | None = None
        for entry in tuple(self._pods.values()) if limits else ():
            limit = limits.get(entry.queue)
            if limit is None or entry.is_deleting or entry.phase in _ENDED:
                continue
            age = time.monotonic() - self._began[entry.uid]
            if age < limit:
                next_end = min(next_end or limit, limit - age)
                continue
            with self._guard.step(entry.raw, None, "maxDuration"):
                await self._end(entry, limit)
        return next_end

    async def _end(self, pod: PodEntry, limit: float) -> None:
        """Say who takes the pod, in Kubernetes' own way, then delete it (decision 26)."""
        message = f"queue {pod.queue} lets pods run for at most {limit:g} s"

        def mark(obj: Object) -> Object | None:
            if obj["metadata"]["uid"] != pod.uid:
                return None
            return with_disruption_target(obj, QUEUE_MAX_DURATION, message)

        try:
            await self._objects.update(_PODS, pod.namespace, pod.name, mark, subresource="status")
            await self._objects.delete(_PODS, pod.namespace, pod.name, Deletion(uid=pod.uid))
        except KubeError:
            return  # gone, or changed: looked at again with the next change

    async def _write_statuses(self) -> None:
        of_queue: dict[str, list[PodEntry]] = {}
        of_group: dict[tuple[str, str], list[PodEntry]] = {}
        for pod in self._pods.values():
            of_queue.setdefault(pod.queue, []).append(pod)
            of_group.setdefault((pod.namespace, pod.group), []).append(pod)
        counts = Counter(group.queue for group in self._groups.values())
        for name in tuple(self._queues):
            with self._guard.step(_named(self._kinds.queues, "", name), None, "status"):
                status = _queue_status(of_queue.get(name, ()), counts[name])
                await self._write(self._queue_resource, "", name, status)
        for key, group in tuple(self._groups.items()):
            with self._guard.step(_named(self._kinds.groups, *key), None, "status"):
                status = _group_status(group, of_group.get(key, ()))
                await self._write(self._group_resource, *key, status)

    async def _write(self, resource: str, namespace: str, name: str, status: Object) -> None:
        def change(obj: Object) -> Object:
            present = obj.get("status") or {}
            _keep_transition_times(status, present)
            return {**obj, "status": {**present, **status}}

        try:
            await self._objects.update(resource, namespace, name, change, subresource="status")
        except KubeError:
            return  # deleted meanwhile


def _head(pod: Object) -> Object:
    """The fields of a pod by which events refer to it."""
    return {key: pod[key] for key in ("apiVersion", "kind", "metadata")}


def _named(resource: Resource, namespace: str, name: str) -> Object:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _allocated(pods: Sequence[PodEntry]) -> dict[str, str]:
    used = total(pod.requests for pod in pods if pod.node and pod.phase not in _ENDED)
    return {name: format_amount(name, value) for name, value in used.items() if name != PODS}


def _queue_status(pods: Sequence[PodEntry], groups: int) -> Object:
    phases = Counter(pod.phase.lower() for pod in pods)
    return {
        "allocated": _allocated(pods),
        "podGroups": {"total": groups},
        "pods": {state: phases[state] for state in _STATES},
    }


def _group_status(group: PodGroupRules, pods: Sequence[PodEntry]) -> Object:
    phases = Counter(pod.phase.lower() for pod in pods)
    is_finished = bool(pods) and all(pod.phase in _ENDED for pod in pods)
    lacks = group.missing(pods, group.min_member)
    is_scheduled = sum(1 for pod in pods if pod.node) >= group.min_member
    phase = "Finished" if is_finished else "Running" if is_scheduled else "Pending"
    return {
        "phase": phase,
        "allocated": _allocated(pods),
        **{state: phases[state] for state in _STATES[:-1]},
        "conditions": [
            _condition("SufficientGroupMember", is_true=not lacks, message=lacks),
            _condition("GroupScheduled", is_true=is_scheduled, message=""),
        ],
    }


def _condition(kind: str, *, is_true: bool, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if is_true else "False",
        "reason": kind if is_true else f"Not{kind}",
        "message": message,
        "lastTransitionTime": now_text(),
    }


def _keep_transition_times(status: Object, present: Object) -> None:
    known = {each["type"]: each for each in present.get("conditions") or ()}
    for condition in status.get("conditions") or ():
        before = known.get(condition["type"])
        if before is not None and before.get("status") == condition["status"]:
            condition["lastTransitionTime"] = before.get("lastTransitionTime")
