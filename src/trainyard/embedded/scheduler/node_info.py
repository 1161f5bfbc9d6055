"""What the node's pods hold of the machine, and whether more pods fit.

Unless told to be strict, the machine bends where a cluster's manifest asks for more CPU or memory
than a laptop has: a job counts for at most the whole machine, and once one of its pods runs the
others may join, since half a training job is of no use to anyone. Devices never bend (decision 39).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.scheduler.resource_requests import (
    PODS,
    SHARED,
    Amounts,
    describe_amount,
    pod_requests,
    total,
)
from trainyard.kube.embedded_contract import NEVER_HERE
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PodEntry:
    """What the scheduler remembers of a pod; `requests` as declared, `job` its owner's UID."""

    namespace: str
    name: str
    uid: str
    job: str
    created: str
    node: str
    is_deleting: bool
    group: str
    queue: str
    role: str
    phase: str
    requests: Amounts = field(hash=False)
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_pod(cls, pod: Mapping[str, Any], extension: Extension) -> PodEntry:
        """From a stored pod; the extension says which labels name its owner, queue and group."""
        metadata, spec = pod["metadata"], pod["spec"]
        labels = metadata.get("labels") or {}
        queues = extension.queues
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            job=labels.get(extension.owner_label) or metadata["uid"],
            created=metadata["creationTimestamp"],
            node=spec.get("nodeName", ""),
            is_deleting="deletionTimestamp" in metadata,
            group=labels.get(queues.group_label, "") if queues else "",
            queue=labels.get(queues.queue_label, "") if queues else "",
            role=labels.get(queues.role_label, "") if queues else "",
            phase=(pod.get("status") or {}).get("phase") or "Pending",
            requests=pod_requests(pod) | {PODS: 1},
            raw=pod,
        )


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource that does not suffice."""

    resource: str
    wanted: int
    free: int
    capacity: int

    @property
    def is_lasting(self) -> bool:
        """Even the empty machine has too little; waiting will not help."""
        return self.wanted > self.capacity

    @property
    def lacks_devices(self) -> bool:
        """Whether --resource could pretend that there are more."""
        return self.is_lasting and self.resource not in {*SHARED, PODS}

    def __str__(self) -> str:
        wanted = describe_amount(self.resource, self.wanted)
        if self.is_lasting:
            has = describe_amount(self.resource, self.capacity).removesuffix(f" {self.resource}")
            return f"{wanted}, {NEVER_HERE} {has}"
        free = describe_amount(self.resource, max(self.free, 0)).removesuffix(f" {self.resource}")
        return f"{wanted}, {free} are free"


class NodeInfo:
    """The pods that hold a part of the machine."""

    def __init__(self, capacity: Mapping[str, int], *, is_strict: bool) -> None:
        self.capacity = dict(capacity)
        self.is_strict = is_strict
        self._pods: dict[str, PodEntry] = {}
        self._leaving: set[str] = set()
        self._jobs: dict[str, dict[str, PodEntry]] = {}

    def add_pod(self, pod: PodEntry) -> None:
        """From now on the pod holds what it requests."""
        self._pods[pod.uid] = pod
        self._jobs.setdefault(pod.job, {})[pod.uid] = pod

    def remove_pod(self, uid: str) -> bool:
        """Free what a pod held; returns whether it held anything."""
        self._leaving.discard(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return False
        pods = self._jobs[pod.job]
        del pods[uid]
        if not pods:
            del self._jobs[pod.job]
        return True

    def has_pod(self, uid: str) -> bool:
        """Whether the pod holds its requests."""
        return uid in self._pods

    def mark_leaving(self, uid: str) -> None:
        """The pod is being deleted and will free what it holds."""
        if uid in self._pods:
            self._leaving.add(uid)

    def remaining_pods(self, job: str) -> list[PodEntry]:
        """Pods of a job on the node that are not being deleted."""
        return [pod for uid, pod in self._jobs.get(job, {}).items() if uid not in self._leaving]

    def lasting_shortages(self, wanted: Amounts) -> list[Shortage]:
        """What even the empty machine lacks for these requests."""
        return [
            Shortage(name, value, capacity, capacity)
            for name, value in sorted(wanted.items())
            if (self.is_strict or name not in SHARED)
            and value > (capacity := self.capacity.get(name, 0))
        ]

    def pods(self) -> Iterable[PodEntry]:
        """The pods that hold a part."""
        return self._pods.values()

    def effective_requests(self, pods: Iterable[PodEntry]) -> Amounts:
        """What pods of one job count for: unless strict, at most the machine (decision 39)."""
        amounts = total(pod.requests for pod in pods)
        if self.is_strict:
            return amounts
        return {
            name: min(value, self.capacity.get(name, 0)) if name in SHARED else value
            for name, value in amounts.items()
        }

    def used(self) -> Amounts:
        """What all pods on the node count for."""
        return total(self.effective_requests(pods.values()) for pods in self._jobs.values())

    def shortages(self, pods: Sequence[PodEntry]) -> list[Shortage]:
        """Why these pods of one job cannot start together now; empty when they can."""
        wanted = self.effective_requests(pods)
        used = self.used()
        is_joining = not self.is_strict and pods[0].job in self._jobs
        return [
            Shortage(name, value, self.capacity.get(name, 0) - used.get(name, 0), capacity)
            for name, value in sorted(wanted.items())
            if value
            and not (is_joining and name in SHARED)
            and used.get(name, 0) + value > (capacity := self.capacity.get(name, 0))
        ]

    def over_requests(self, job: str) -> Amounts:
        """Requests of a running job beyond the machine's capacity; empty if strict."""
        if self.is_strict:
            return {}
        asked = total(pod.requests for pod in self._jobs.get(job, {}).values())
        return {
            name: value
            for name, value in asked.items()
            if name in SHARED and value > self.capacity.get(name, 0)
        }
