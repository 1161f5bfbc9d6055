"""Which pods of a job start together without a queue, and what they need in all.

Pods that train together are of no use one by one: half a job would hold devices for ever while
the other half, or half of another job, waits for them (decision 113). Where the scheduler may
overcommit CPU and memory they hold nobody up, so only jobs that ask for devices are described;
with `is_strict` all are. What makes a gang comes from the extension (`GangRules`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.embedded.cluster_extension import CustomKind, Gang, GangRules
from trainyard.embedded.scheduler.node_info import PodEntry
from trainyard.embedded.scheduler.resource_requests import (
    PODS,
    SHARED,
    Amounts,
    pod_requests,
    total,
)
from trainyard.embedded.storage.journal import Event, Object
from trainyard.schema.dataclass import dataclass

_OVER = ("Succeeded", "Failed", "Deleted")
"""Phases of replicas that never run again."""


@dataclass(frozen=True, slots=True)
class GangPlan:
    """A gang as the scheduler needs it."""

    size: int
    """How many pods must run for any of them to get on."""
    needs: Amounts
    """What the first `size` pods request together."""
    ranks: Mapping[str, int]
    """The place of each pod, by its name."""
    joins_alone: bool
    """A pod that starts again does not wait for the others."""

    @classmethod
    def from_gang(cls, gang: Gang) -> GangPlan:
        """Add up what the pods request; equal manifests are mostly one object."""
        requests = {id(pod): {**pod_requests(pod), PODS: 1} for pod in gang.pods}
        return cls(
            size=gang.size,
            needs=total(requests[id(pod)] for pod in gang.pods),
            ranks={name: rank for rank, name in enumerate(gang.names)},
            joins_alone=gang.joins_alone,
        )

    def by_rank(self, pods: Sequence[PodEntry]) -> list[PodEntry]:
        """The pods, rank 0 first."""
        return sorted(pods, key=lambda pod: (self.ranks.get(pod.name, len(self.ranks)), pod.name))


class GangIndex:
    """The jobs of the cluster, as far as placing their pods depends on them."""

    def __init__(
        self, kinds: Sequence[CustomKind], capacity: Mapping[str, int], *, is_strict: bool
    ) -> None:
        self._rules: dict[str, GangRules] = {
            kind.resource.full_name: kind.gang for kind in kinds if kind.gang is not None
        }
        self._capacity, self._is_strict = capacity, is_strict
        self._jobs: dict[str, tuple[str, Object]] = {}
        """Resource and object, by UID."""
        self._plans: dict[str, tuple[int, GangPlan | None]] = {}
        """The plan of a job's generation, by UID."""

    @property
    def resources(self) -> Sequence[str]:
        """Full names of the resources whose objects may have gangs; to be observed."""
        return tuple(self._rules)

    def observe(self, event: Event) -> str:
        """Take in a change of a job; returns its UID."""
        uid = str(event.object["metadata"]["uid"])
        self._jobs[uid] = (event.resource, event.object)
        if event.type == "DELETED":
            del self._jobs[uid]
            self._plans.pop(uid, None)
        return uid

    def gang_of(self, job: str) -> GangPlan | None:
        """The gang of the job with this UID; None where its pods may start one by one now."""
        resource, obj = self._jobs.get(job, ("", {}))
        if not resource:
            return None
        rules = self._rules[resource]
        generation = obj["metadata"].get("generation", 0)
        known, plan = self._plans.get(job, (-1, None))
        if known != generation:
            plan = self._plan(rules, obj)
            self._plans[job] = (generation, plan)
        if plan and plan.joins_alone and rules.has_started(obj):
            return None
        return plan

    def required_members(self, job: str, minimum: int) -> int:
        """How many of `minimum` pods can still be there: replicas that are over never return."""
        resource, obj = self._jobs.get(job, ("", {}))
        if "status" not in obj:
            return minimum
        phases = self._rules[resource].replica_phases(obj)
        return min(minimum, sum(phase not in _OVER for phase in phases))

    def _plan(self, rules: GangRules, obj: Object) -> GangPlan | None:
        is_large = len(rules.replica_phases(obj)) > self._capacity.get(PODS, 0)
        if not (self._is_strict or is_large or _asks_for_devices(obj["spec"])):
            return None
        gang = rules.describe(obj)
        return None if gang is None else GangPlan.from_gang(gang)


def _asks_for_devices(part: Any) -> bool:
    """Whether a container anywhere in a part of a spec asks for what cannot be overcommitted."""
    if isinstance(part, list):
        return any(_asks_for_devices(each) for each in part)
    if not isinstance(part, dict):
        return False
    resources = part.get("resources")
    if isinstance(resources, dict):
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        if asked.keys() - SHARED:
            return True
    return any(_asks_for_devices(each) for each in part.values())
