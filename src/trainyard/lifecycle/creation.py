"""Which pods to delete and to create, so that each replica has the pod of its attempt.

Pod names are the replicas' names: the pod of an attempt cannot exist before the last one's is
gone, so there are never two pods for one replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Workload
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle.actions import Create, Delete
from trainyard.lifecycle.ledger import Ledger
from trainyard.lifecycle.observed import Conflict, Observed, Pod
from trainyard.lifecycle.replicas import Replica, View
from trainyard.schema.times import earliest


def removals(view: View) -> list[Delete]:
    """Pods of attempts that are over, and of replicas that are not wanted any more."""
    return delete_all([*superseded(view), *view.surplus])


def superseded(view: View) -> list[Pod]:
    """Pods of attempts that are over."""
    return [replica.old for replica in view.idle if replica.old is not None]


def delete_all(pods: Sequence[Pod]) -> list[Delete]:
    """Graceful deletions of those pods that are not being deleted yet."""
    return [Delete(PODS, pod.name, pod.uid) for pod in pods if pod.deleting is None]


def creations(
    workload: Workload, ledger: Ledger, view: View, pod_group: str, now: datetime
) -> tuple[list[tuple[Replica, Create]], datetime | None]:
    """Pods to create now; when the delay of others is over."""
    missing = [r for r in view.idle if r.pod is None and r.old is None and not r.ended]
    if not missing or _waits_for_old(ledger, view):
        return [], None
    wake_at, ready = None, []
    for replica in missing:
        start = _start(ledger, replica.name)
        if start is not None and now < start:
            wake_at = earliest(wake_at, start)
            continue
        attempt = ledger.wanted(replica.name)
        build = partial(
            workload.build_pod,
            replica.key,
            attempt,
            pod_group=pod_group,
            resumed=ledger.resumed,
        )
        ready.append((replica, Create(PODS, replica.name, build)))
    return ready, wake_at


@dataclass(frozen=True, slots=True)
class Hurdles:
    """What stands in the way of creations: refusals of a resource, and names that are taken."""

    refused: Mapping[Resource, datetime]
    taken: Mapping[tuple[Resource, str], Conflict]

    @classmethod
    def of(cls, observed: Observed, settings: Settings) -> Hurdles:
        """Sorted once, for there may be thousands of creations."""
        refused: dict[Resource, datetime] = {}
        for refusal in observed.refusals:
            until = refusal.at + _pause(refusal.count, settings)
            refused[refusal.resource] = max(until, refused.get(refusal.resource, until))
        return cls(refused, {(c.resource, c.name): c for c in observed.conflicts})

    @property
    def none(self) -> bool:
        """Whether everything may be created."""
        return not self.refused and not self.taken

    def judge(self, create: Create, now: datetime) -> tuple[bool, datetime | None]:
        """Whether an object may be created now, and if not, when it may; None: nobody knows."""
        conflict = self.taken.get((create.resource, create.name))
        until = conflict.until if conflict else self.refused.get(create.resource)
        clear = now >= until if until is not None else conflict is None
        return clear, None if clear else until


def _pause(count: int, settings: Settings) -> timedelta:
    seconds = settings.refusal_base_seconds * 2.0 ** min(count - 1, 30)
    return timedelta(seconds=min(seconds, settings.refusal_max_seconds))


def _start(ledger: Ledger, name: str) -> datetime | None:
    record = ledger.records.get(name)
    if record is not None and record.not_before is not None:
        return record.not_before
    return ledger.not_before


def _waits_for_old(ledger: Ledger, view: View) -> bool:
    """When all start anew, nobody starts before the last of the old ones is gone.

    A new process that meets an old one joins a group that is about to end.
    """
    all_anew = ledger.floor == ledger.attempt and not ledger.records
    return all_anew and any(r.old is not None for r in view.idle)
