"""Which pods of a job start together though they wait in no queue, and what they need in all.

Replicas that train together are of no use one by one: half a job would hold devices for ever that
the other half, or half of another job, waits for (decision 113). CPU and memory hold nobody up
where the machine bends, so only jobs that ask for devices are looked at, and all where it is
strict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.embedded.scheduler.node_info import PodEntry
from trainyard.embedded.scheduler.resource_requests import (
    PODS,
    SHARED,
    Amounts,
    pod_requests,
    total,
)
from trainyard.embedded.storage.journal import Event, Object
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import ReplicaKey, Scope, Workload
from trainyard.schema.dataclass import dataclass

RESOURCES = {kind.full_name: kind for kind in JOB_KINDS.values()}
"""Jobs, as the cluster's objects have them."""
_OVER = ("Succeeded", "Failed", "Deleted")


@dataclass(frozen=True, slots=True)
class Gang:
    """Replicas of one job that are of no use without each other."""

    size: int
    """How many must run for any of them to get on."""
    needs: Amounts
    """Of the first so many by rank."""
    ranks: Mapping[str, int]
    """Pod names by rank."""
    joins_alone: bool
    """Whether one that starts again does so by itself."""

    def by_rank(self, pods: Sequence[PodEntry]) -> list[PodEntry]:
        """The pods, rank 0 first."""
        return sorted(pods, key=lambda pod: (self.ranks.get(pod.name, len(self.ranks)), pod.name))


class GangIndex:
    """All jobs of the cluster, as far as it matters for placing their pods."""

    def __init__(self, capacity: Mapping[str, int], *, is_strict: bool) -> None:
        self._capacity, self._is_strict = capacity, is_strict
        self._jobs: dict[str, tuple[str, Object]] = {}
        self._made: dict[str, tuple[int, Gang | None]] = {}

    def observe(self, event: Event) -> str:
        """A job changed; its UID."""
        uid = str(event.object["metadata"]["uid"])
        self._jobs[uid] = (event.resource, event.object)
        if event.type == "DELETED":
            del self._jobs[uid]
            self._made.pop(uid, None)
        return uid

    def gang_of(self, job: str) -> Gang | None:
        """The team of the job with this UID, if its replicas need each other and devices."""
        resource, obj = self._jobs.get(job, ("", {}))
        if not resource:
            return None
        generation = obj["metadata"].get("generation", 0)
        known, team = self._made.get(job, (-1, None))
        if known != generation:
            is_looked_at = self._is_strict or self._is_large(obj) or _asks_for_devices(obj["spec"])
            team = _gang_of(resource, obj) if is_looked_at else None
            self._made[job] = (generation, team)
        if team and team.joins_alone and (obj.get("status") or {}).get("startTime"):
            return None
        return team

    def required_members(self, job: str, least: int) -> int:
        """Of `least` pods that must be there, how many can be: ends of replicas are for good, or
        they are to be created again."""
        obj = self._jobs.get(job, ("", {}))[1]
        if "status" not in obj:
            return least
        return min(least, sum(replica.get("phase") not in _OVER for replica in _replicas(obj)))

    def _is_large(self, obj: Object) -> bool:
        return len(_replicas(obj)) > self._capacity.get(PODS, 0)


def _replicas(obj: Object) -> list[Object]:
    tasks = (obj.get("status") or {}).get("tasks") or ()
    return [replica for task in tasks for replica in task.get("replicas") or ()]


def _asks_for_devices(part: Any) -> bool:
    """Whether any container in a part of a spec asks for what the machine cannot bend."""
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


def _gang_of(resource: str, obj: Object) -> Gang | None:
    kind = RESOURCES[resource]
    model: Any = kind.model.model_validate(obj)
    workload: Workload = kind.describe(model, Settings())
    if workload.together < 2:
        return None
    of_type = {
        name: {**pod_requests(_pod(workload, ReplicaKey(name, 0))), PODS: 1}
        for name in {key.type for key in workload.keys}
    }
    return Gang(
        size=workload.together,
        needs=total(of_type[key.type] for key in workload.keys[: workload.together]),
        ranks={workload.pod_name(key): rank for rank, key in enumerate(workload.keys)},
        joins_alone=workload.scope is Scope.REPLICA,
    )


def _pod(workload: Workload, key: ReplicaKey) -> Object:
    return workload.build_pod(key, 1, pod_group="", resumed=False)
