"""The scheduler's loop: binds pods that fit, and reports why the others wait.

Runs in the cluster's process on the registry. There is one node, this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_extension import NO_EXTENSION, Extension
from trainyard.embedded.cluster_objects import Objects
from trainyard.embedded.scheduler import node_filters
from trainyard.embedded.scheduler.job_gangs import GangIndex
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.node_info import NodeInfo, PodEntry, Shortage
from trainyard.embedded.scheduler.pod_group_rules import PodGroupRules
from trainyard.embedded.scheduler.queue_limits import QueueLimits
from trainyard.embedded.scheduler.resource_requests import describe_amount
from trainyard.embedded.scheduler.scheduling_events import (
    SchedulingEvents,
    object_reference,
    owner_reference,
)
from trainyard.embedded.service_supervisor import RetryGuard, Supervisor, event_batches
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kube.embedded_contract import IMPLICIT
from trainyard.kube.errors import AlreadyExists, NotFound
from trainyard.kube.resources import NODES, PODS
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.schema.object_names import is_dns_subdomain

_PODS, _NODES = PODS.full_name, NODES.full_name
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """`is_strict`: refuse, as a cluster would, what this machine cannot honour to the letter."""

    node_name: str
    capacity: Capacity
    is_strict: bool = False
    extension: Extension = NO_EXTENSION
    """Which objects have gangs, queues and groups."""


@dataclass(frozen=True, slots=True)
class _SchedulingUnit:
    """Pods that start together, or one pod."""

    pods: tuple[PodEntry, ...]
    queue: QueueLimits | None = None
    group: PodGroupRules | None = None
    wait_reason: str = ""
    is_gang: bool = False
    is_forming: bool = False
    """Its pods are still being created; no warning is due."""
    after: PodEntry | None = None
    """Whose unit goes first."""

    @property
    def order(self) -> tuple[int, int, str, str, bool, str]:
        """Queue priority, then the group's, then age."""
        first = self.after or self.pods[0]
        return (
            -(self.queue.priority if self.queue else 0),
            -(self.group.priority if self.group else 0),
            first.created,
            first.name,
            self.after is not None,
            self.pods[0].name,
        )


class Scheduler:
    """Binds pods to this machine until cancelled."""

    def __init__(
        self, objects: Objects, settings: SchedulerSettings, supervisor: Supervisor | None = None
    ) -> None:
        self._objects = objects
        self._guard: RetryGuard[Event | None] = RetryGuard("scheduler", supervisor)
        self._settings = settings
        self._node = NodeInfo(settings.capacity.amounts, is_strict=settings.is_strict)
        self._node_object: Object = {}
        """The node, as it is stored."""
        self._waiting: dict[str, PodEntry] = {}
        self._queues: dict[str, QueueLimits] = {}
        self._groups: dict[tuple[str, str], PodGroupRules] = {}
        self._reported_reasons: dict[str, str] = {}
        kinds = settings.extension.load_kinds()
        self._gangs = GangIndex(kinds, self._node.capacity, is_strict=settings.is_strict)
        queues = settings.extension.queues
        self._queue_resource = queues.queues.full_name if queues else ""
        self._group_resource = queues.groups.full_name if queues else ""
        self._default_queue = queues.default_queue if queues else ""
        self._waiting_jobs: set[str] = set()
        self._events = SchedulingEvents(objects)

    async def run(self) -> None:
        """Schedule until cancelled; the default queue is created first."""
        if self._queue_resource:
            with suppress(AlreadyExists):
                await self._objects.create(self._queue_resource, _new_queue(self._default_queue))
        # Jobs come before their pods, so that a pod of a gang is known as such.
        others = filter(None, (self._queue_resource, self._group_resource))
        subscription = self._objects.subscribe(_NODES, *self._gangs.resources, _PODS, *others)
        try:
            async for events in event_batches(subscription, self._guard):
                again = [event for event in self._guard.due_retries() if event is not None]
                # Status changes of running pods are the bulk, and change nothing here.
                changes = [self._observe_guarded(event) for event in (*again, *events)]
                if any(changes) or not events:
                    await self._schedule()
        finally:
            self._objects.unsubscribe(subscription)

    # Observers: each returns whether the change may affect a waiting pod.

    def _observe_guarded(self, event: Event) -> bool:
        with self._guard.step(event.object, event):
            return self._observe(event)
        return False

    def _observe(self, event: Event) -> bool:
        if event.resource == _PODS:
            return self._observe_pod(event)
        if event.resource in self._gangs.resources:
            job = self._gangs.observe(event)
            return job in self._waiting_jobs and bool(self._waiting)
        metadata = event.object["metadata"]
        name, is_gone = metadata["name"], event.type == "DELETED"
        if event.resource == _NODES:
            if name == self._settings.node_name:
                self._node_object = {} if is_gone else event.object
            return bool(self._waiting)
        if event.resource == self._queue_resource:
            self._queues.pop(name, None)
            if not is_gone:
                self._queues[name] = QueueLimits.from_object(event.object)
        else:
            self._groups.pop((metadata["namespace"], name), None)
            if not is_gone:
                group = PodGroupRules.from_object(event.object, self._default_queue)
                self._groups[metadata["namespace"], name] = group
        return bool(self._waiting)

    def _observe_pod(self, event: Event) -> bool:
        uid = event.object["metadata"]["uid"]
        phase = (event.object.get("status") or {}).get("phase")
        if event.type == "DELETED" or phase in _ENDED:
            self._waiting.pop(uid, None)
            self._reported_reasons.pop(uid, None)
            if event.type == "DELETED":
                self._reported_reasons.pop(_clamped_key(owner_reference(event.object)), None)
            return self._node.remove_pod(uid) and bool(self._waiting)
        if self._node.has_pod(uid):
            if "deletionTimestamp" in event.object["metadata"]:
                self._node.mark_leaving(uid)
            return False
        entry = PodEntry.from_pod(event.object, self._settings.extension)
        is_placed = entry.node == self._settings.node_name
        if is_placed or entry.is_deleting or event.object["spec"].get("schedulingGates"):
            self._waiting.pop(uid, None)
            if is_placed:
                self._node.add_pod(entry)
            return False
        if entry.node and self._settings.is_strict:
            return False  # pinned to a machine that is not there: nobody's to place
        known, self._waiting[uid] = self._waiting.get(uid), entry
        return known is None or known.raw["spec"] != entry.raw["spec"]

    # Placing.

    async def _schedule(self) -> None:
        if not self._settings.is_strict:
            await self._create_absent_queues()
        writes: list[Coroutine[Any, Any, None]] = []
        self._waiting_jobs = {pod.job for pod in self._waiting.values()}
        for unit in sorted(self._units(), key=lambda unit: unit.order):
            with self._guard.step(unit.pods[0].raw, None, "placing"):
                writes += self._schedule_unit(unit)
        await asyncio.gather(*writes)

    def _schedule_unit(self, unit: _SchedulingUnit) -> list[Coroutine[Any, Any, None]]:
        """What is to be written so that the pods of a unit start, or wait and say why."""
        if reason := unit.wait_reason or self._rejection_reason(unit):
            writes = [self._report_unschedulable(pod, reason) for pod in unit.pods]
            return writes if unit.is_forming else [*writes, self._warn(unit, reason)]
        for pod in unit.pods:
            self._node.add_pod(pod)
            del self._waiting[pod.uid]
        return [self._guarded_bind(pod) for pod in unit.pods]

    async def _guarded_bind(self, pod: PodEntry) -> None:
        """Bind a pod; one that cannot be bound now (the disk is full, say) goes on waiting."""
        bound = False
        with self._guard.step(pod.raw, None, "binding"):
            bound = await self._bind(pod)
        if not bound:
            self._node.remove_pod(pod.uid)
            if self._is_there(pod):
                self._waiting[pod.uid] = pod

    def _is_there(self, pod: PodEntry) -> bool:
        with suppress(NotFound):
            now = self._objects.get(_PODS, pod.namespace, pod.name)
            return bool(now["metadata"]["uid"] == pod.uid)
        return False

    def _units(self) -> list[_SchedulingUnit]:
        units: list[_SchedulingUnit] = []
        grouped: dict[tuple[str, str], list[PodEntry]] = {}
        by_job: dict[str, list[PodEntry]] = {}
        for pod in self._waiting.values():
            if pod.group:
                grouped.setdefault((pod.namespace, pod.group), []).append(pod)
            elif pod.queue:
                queue = self._queues.get(pod.queue)
                reason = "" if queue else f"queue {pod.queue} does not exist"
                units.append(_SchedulingUnit((pod,), queue, None, reason))
            else:
                by_job.setdefault(pod.job, []).append(pod)
        for key, pods in grouped.items():
            units += self._group_units(key, pods)
        for job, pods in by_job.items():
            units += self._gang_units(job, pods)
        return units

    def _gang_units(self, job: str, pods: list[PodEntry]) -> list[_SchedulingUnit]:
        """The gang as one unit, as long as too few of its pods run (decision 113)."""
        team = None
        with self._guard.step(pods[0].raw, None, "its job"):
            team = self._gangs.gang_of(job)
        wanted = self._gangs.required_members(job, team.size) if team else 0
        first = wanted - len(self._node.remaining_pods(job))
        if team is None or first <= 0:
            return [_SchedulingUnit((pod,)) for pod in pods]
        pods = team.by_rank(pods)
        if wanted == team.size and (never := self._node.lasting_shortages(team.needs)):
            return [
                _SchedulingUnit(
                    tuple(pods), wait_reason=_shortage_message(team.size, never), is_gang=True
                )
            ]
        if len(pods) < first:
            reason = f"waits for other pods of its job: {first} start together"
            return [_SchedulingUnit(tuple(pods), wait_reason=reason, is_forming=True)]
        later = [_SchedulingUnit((pod,), after=pods[0]) for pod in pods[first:]]
        return [_SchedulingUnit(tuple(pods[:first]), is_gang=True), *later]

    def _group_units(self, key: tuple[str, str], pods: list[PodEntry]) -> list[_SchedulingUnit]:
        """A PodGroup as one unit while it waits; single pods once its minimum runs."""
        group = self._groups.get(key)
        if group is None:
            reason = f"pod group {key[1]} does not exist"
            return [_SchedulingUnit((pod,), None, None, reason) for pod in pods]
        name = pods[0].queue or group.queue
        queue = self._queues.get(name)
        running = [p for p in self._node.pods() if (p.namespace, p.group) == key]
        reason = f"queue {name} does not exist" if queue is None else ""
        least = self._gangs.required_members(pods[0].job, group.min_member)
        reason = reason or group.missing([*running, *pods], least)
        if reason:
            return [_SchedulingUnit(tuple(pods), queue, group, reason)]
        # Those beyond the minimum start only if there is room.
        first = max(least - len(running), 0)
        pods.sort(key=lambda pod: (pod.created, pod.name))
        together = [_SchedulingUnit(tuple(pods[:first]), queue, group)] if first else []
        return [*together, *(_SchedulingUnit((pod,), queue, group) for pod in pods[first:])]

    def _rejection_reason(self, unit: _SchedulingUnit) -> str:
        for pod in unit.pods:
            if text := node_filters.rejection_reason(
                pod.raw, self._node_object, is_strict=self._settings.is_strict
            ):
                return text
        if unit.queue is not None and (
            reason := unit.queue.rejection_reason(unit.pods, self._node)
        ):
            return reason
        shortages = self._node.shortages(unit.pods)
        if not shortages:
            return ""
        return _shortage_message(len(unit.pods), shortages)

    async def _bind(self, pod: PodEntry) -> bool:
        """Bind a pod; returns False if it is gone."""
        node = self._settings.node_name

        def change(obj: Object) -> Object | None:
            if obj["metadata"]["uid"] != pod.uid or "deletionTimestamp" in obj["metadata"]:
                return None
            obj["spec"]["nodeName"] = node
            _set_scheduled(obj, "True", "", "")
            return obj

        try:
            await self._objects.update(
                _PODS, pod.namespace, pod.name, change, subresource="binding"
            )
        except NotFound:
            return False
        self._reported_reasons.pop(pod.uid, None)
        with suppress(TrainyardError):  # an event is not worth the binding
            await self._warn_of_deviations(pod)
        return True

    async def _report_unschedulable(self, pod: PodEntry, reason: str) -> None:
        if self._reported_reasons.get(pod.uid) == reason:
            return
        self._reported_reasons[pod.uid] = reason

        def change(obj: Object) -> Object | None:
            if obj["metadata"]["uid"] != pod.uid:
                return None
            _set_scheduled(obj, "False", "Unschedulable", reason)
            return obj

        try:
            await self._objects.update(_PODS, pod.namespace, pod.name, change, subresource="status")
        except TrainyardError:  # reported with the next change
            self._reported_reasons.pop(pod.uid, None)

    async def _warn(self, unit: _SchedulingUnit, reason: str) -> None:
        """Write an event why a unit waits, once for all pods of a job with the same reason."""
        first = unit.pods[0]
        is_one = len(unit.pods) == 1 and not unit.is_gang
        about = object_reference(first.raw) if is_one else owner_reference(first.raw)
        message = f"cannot schedule {about['name']}: {reason}"
        topic = f"{first.job}: {reason}"
        await self._events.warn(about, "FailedScheduling", message, topic=topic)

    # Unless strict, a manifest written for a cluster runs on a laptop too (decision 39).

    async def _warn_of_deviations(self, pod: PodEntry) -> None:
        if self._settings.is_strict:
            return
        job = owner_reference(pod.raw)
        if clamped := self._node.over_requests(pod.job):
            capacity = self._node.capacity
            asked = ", ".join(
                f"{describe_amount(name, value)} of {describe_amount(name, capacity.get(name, 0))}"
                for name, value in clamped.items()
            )
            text = f"the job requests more than this machine has ({asked}); it runs all the same"
            # The sum grows pod by pod; once is enough.
            if self._reported_reasons.setdefault(_clamped_key(job), text) is text:
                await self._events.warn(job, "RequestsClamped", text)
        if pod.node:
            text = f"nodeName {pod.node} is taken to mean this machine"
            await self._events.warn(job, "PlacementIgnored", text)
        if not node_filters.matches_node(pod.raw, self._node_object):
            text = "nodeSelector and nodeAffinity are taken to mean this machine"
            await self._events.warn(job, "PlacementIgnored", text)

    async def _create_absent_queues(self) -> None:
        pods: dict[str, PodEntry] = {p.queue: p for p in self._waiting.values() if p.queue}
        any_will_do = all(queue.is_implicit for queue in self._queues.values())
        for name, pod in pods.items():
            if name in self._queues or not (any_will_do or name == self._default_queue):
                continue
            with self._guard.step(pod.raw, None, "its queue"):
                await self._create_queue(name, pod)

    async def _create_queue(self, name: str, pod: PodEntry) -> None:
        if not is_dns_subdomain(name):  # a label, which nobody has checked
            return
        try:
            queue = await self._objects.create(self._queue_resource, _new_queue(name))
        except AlreadyExists:
            return
        self._queues[name] = QueueLimits.from_object(queue)
        if name != self._default_queue:
            text = f"queue {name} did not exist; it was created without limits"
            await self._events.warn(owner_reference(pod.raw), "QueueCreated", text)


def _shortage_message(pods: int, shortages: Sequence[Shortage]) -> str:
    """The message for pods that lack resources, with the flags that would help."""
    who = "needs" if pods == 1 else f"the {pods} pods that start together need"
    text = f"{who} " + "; ".join(str(shortage) for shortage in shortages)
    if devices := [shortage for shortage in shortages if shortage.lacks_devices]:
        flags = " ".join(f"--resource {s.resource}={s.wanted}" for s in devices)
        return f"{text}; to pretend the devices, start the cluster with {flags}"
    if any(shortage.is_lasting for shortage in shortages):
        return text
    return f"{text}; waiting for other pods to end"


def _new_queue(name: str) -> Object:
    """A queue without limits (decision 39)."""
    return {"metadata": {"name": name, "annotations": {IMPLICIT: "true"}}, "spec": {}}


def _clamped_key(job: Mapping[str, Any]) -> str:
    return f"{job['uid']}/RequestsClamped"


def _set_scheduled(pod: Object, status: str, reason: str, message: str) -> None:
    """Write the PodScheduled condition; its transition time changes with its status."""
    conditions: list[Object] = pod.setdefault("status", {}).setdefault("conditions", [])
    new: Object = {"type": "PodScheduled", "status": status}
    if reason:
        new |= {"reason": reason, "message": message}
    for index, condition in enumerate(conditions):
        if condition["type"] == "PodScheduled":
            kept = condition.get("lastTransitionTime")
            is_same = condition["status"] == status and kept
            conditions[index] = new | {"lastTransitionTime": kept if is_same else now_text()}
            return
    conditions.append(new | {"lastTransitionTime": now_text()})
