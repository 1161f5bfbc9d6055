"""Kueue, played by a test: its quota, its webhook and what its Workload controller does.

As strict as its documentation and its source (v1beta2): a Workload that was evicted keeps its quota
until its owner gives that back, pod sets are immutable while quota is reserved, but for slices that
shrink, and nothing is queued again that Kueue would not queue again.
https://kueue.sigs.k8s.io/docs/concepts/workload/
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.schema.times import parse, render

Object = dict[str, Any]

FLAVOR = {
    "apiVersion": kueue_workload.FLAVORS.api_version,
    "kind": "ResourceFlavor",
    "metadata": {"name": "spot"},
    "spec": {
        "nodeLabels": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    },
}
PLURAL = kueue_workload.WORKLOADS.plural


class Invalid(Exception):
    """What the webhook answers."""


@dataclass
class Kueue:
    """One ClusterQueue with a quota of so many pods, all of one flavor, and a LocalQueue in front.

    `turn()` is called again and again; each time every Workload goes one step on.
    """

    quota: int
    checks: tuple[str, ...] = ()
    """Admission checks; those in `ready` have been satisfied."""
    ready: set[str] = field(default_factory=set)
    is_stopped: bool = False
    ready_seconds: float | None = None
    """After so long without PodsReady a Workload is evicted (`waitForPodsReady`)."""
    backoff_seconds: float = 5.0

    # The webhook.

    def review(self, old: Object | None, new: Object) -> None:
        """Raises `Invalid` for what Kueue does not accept of a Workload's owner."""
        names = [each["name"] for each in new["spec"]["podSets"]]
        if not 1 <= len(names) <= 18 or len(set(names)) != len(names):
            raise Invalid(f"pod sets {names}")
        if old is None:
            return
        if reserved(old):
            self._review_pod_sets(old["spec"]["podSets"], new)
            if reserved(new) and old["spec"]["queueName"] != new["spec"]["queueName"]:
                raise Invalid("queueName is immutable while quota is reserved")
        was, is_ = _status(old).get("admission"), _status(new).get("admission")
        if was and is_ and was != is_:
            raise Invalid("admission is immutable")
        if reserved(new) and not is_:
            raise Invalid("admission must be set while the QuotaReserved condition is true")
        for each in _status(new).get("conditions") or ():
            missing = {"type", "status", "reason", "lastTransitionTime", "message"} - set(each)
            if missing or not each["reason"]:
                raise Invalid(f"condition {each} lacks {missing}")

    def _review_pod_sets(self, old: Sequence[Object], new: Object) -> None:
        now = new["spec"]["podSets"]
        is_elastic = (new["metadata"].get("annotations") or {}).get(
            kueue_workload.ELASTIC
        ) == "true"
        if len(now) != len(old):
            raise Invalid("podSets are immutable")
        for before, after in zip(old, now, strict=True):
            shrinks = is_elastic and after["count"] < before["count"]
            if {**after, "count": before["count"]} != before:
                raise Invalid("podSets are immutable")
            if after["count"] != before["count"] and not shrinks:
                raise Invalid("the count of a pod set is immutable")

    # The controllers.

    @staticmethod
    def usage(workloads: Sequence[Object]) -> int:
        """Pods' worth of quota that is taken."""
        return sum(size(each) for each in workloads if reserved(each) and not finished(each))

    def turn(self, workloads: Sequence[Object], now: datetime) -> Iterator[Object]:
        """The Workloads that change now, as they are to be stored."""
        found = {each["metadata"]["name"]: copy.deepcopy(each) for each in workloads}
        before = copy.deepcopy(found)
        live = [each for each in found.values() if not finished(each)]
        for each in live:
            self._keep(each, now)
        queued = [each for each in live if _is_admissible(each)]
        if not self.is_stopped:
            for each in sorted(queued, key=_order):
                if not self._schedule(each, found, now):
                    break
        yield from (each for name, each in found.items() if each != before[name])

    def _keep(self, workload: Object, now: datetime) -> None:
        """What the Workload controller does for one."""
        status, spec = workload.setdefault("status", {}), workload["spec"]
        evicted, admitted = true(workload, "Evicted"), true(workload, "Admitted")
        if spec.get("active") is False:
            if not evicted and reserved(workload):
                evict(workload, "Deactivated", "The workload is deactivated", now)
            status.pop("requeueState", None)
        elif self.is_stopped and reserved(workload) and not evicted:
            evict(workload, "ClusterQueueStopped", "The ClusterQueue is stopped", now)
        elif admitted and not evicted and self._is_late(workload, now):
            again = status.get("requeueState", {}).get("count", 0) + 1
            later = render(now + timedelta(seconds=self.backoff_seconds))
            status["requeueState"] = {"count": again, "requeueAt": later}
            evict(workload, "PodsReadyTimeout", "Exceeded the PodsReady timeout", now)
        elif reserved(workload) and not admitted and not evicted:
            self._check(workload, now)
        self._requeue(workload, now)

    def _is_late(self, workload: Object, now: datetime) -> bool:
        since = parse(condition(workload, "Admitted").get("lastTransitionTime"))
        if self.ready_seconds is None or since is None or true(workload, "PodsReady"):
            return False
        return (now - since).total_seconds() > self.ready_seconds

    def _check(self, workload: Object, now: datetime) -> None:
        states = [
            {
                "name": name,
                "state": "Ready" if name in self.ready else "Pending",
                "lastTransitionTime": render(now),
                "message": "",
            }
            for name in self.checks
        ]
        if states and workload["status"].get("admissionChecks") is None:
            workload["status"]["admissionChecks"] = states
        if self.ready >= set(self.checks):
            if states:
                workload["status"]["admissionChecks"] = states
            tell(workload, "Admitted", True, "Admitted", "The workload is admitted", now)

    def _requeue(self, workload: Object, now: datetime) -> None:
        requeued = condition(workload, "Requeued")
        if requeued.get("status") != "False" or workload["spec"].get("active") is False:
            return
        if requeued["reason"] == "Deactivated":
            tell(workload, "Requeued", True, "Reactivated", "The workload was reactivated", now)
        elif requeued["reason"] == "ClusterQueueStopped" and not self.is_stopped:
            tell(workload, "Requeued", True, "ClusterQueueRestarted", "It was restarted", now)
        elif requeued["reason"] == "PodsReadyTimeout":
            at = parse((workload["status"].get("requeueState") or {}).get("requeueAt"))
            if at is None or now >= at:
                tell(workload, "Requeued", True, "BackoffFinished", "It was finished", now)

    def _schedule(self, workload: Object, found: dict[str, Object], now: datetime) -> bool:
        """False: what others give back is for this one, and nobody else is admitted meanwhile."""
        replaced = found.get(_replaces(workload))
        others = [
            each for each in found.values() if each not in (workload, replaced) and reserved(each)
        ]
        others = [each for each in others if not finished(each)]
        missing = sum(map(size, others)) + size(workload) - self.quota
        if missing <= 0:
            self._reserve(workload, now)
            if replaced is not None and not finished(replaced):
                words = "Replaced to accommodate a new workload slice"
                tell(replaced, "Finished", True, "WorkloadSliceReplaced", words, now)
            return True
        mine = workload["spec"].get("priority", 0)
        lower = [each for each in others if each["spec"].get("priority", 0) < mine]
        preempts = sum(map(size, lower)) >= missing and size(workload) <= self.quota
        if preempts:
            for each in sorted(lower, key=_order, reverse=True):
                if missing <= 0:
                    break
                missing -= size(each)
                if not true(each, "Evicted"):
                    evict(each, "Preempted", f"Preempted to accommodate {_name(workload)}", now)
                    tell(each, "Preempted", True, "InClusterQueue", "Preempted", now)
        missing = sum(map(size, others)) + size(workload) - self.quota
        words = (
            f"couldn't assign flavors to pod set {workload['spec']['podSets'][0]['name']}: "
            f"insufficient unused quota for pods in flavor spot, {missing} more needed"
        )
        if condition(workload, "QuotaReserved").get("message") != words:
            tell(workload, "QuotaReserved", False, "Pending", words, now)
        return not preempts

    def _reserve(self, workload: Object, now: datetime) -> None:
        assignments = [
            {
                "name": each["name"],
                "flavors": {"cpu": "spot"},
                "resourceUsage": {"cpu": str(each["count"])},
                "count": each["count"],
            }
            for each in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "cluster-queue", "podSetAssignments": assignments}
        workload["status"]["admission"] = admission
        words = "Quota reserved in ClusterQueue cluster-queue"
        tell(workload, "QuotaReserved", True, "QuotaReserved", words, now)
        for kind in ("Evicted", "Preempted"):
            if true(workload, kind):
                tell(workload, kind, False, "QuotaReserved", "Previously: evicted", now)
        self._check(workload, now)


# What can be read off a Workload.


def _status(workload: Object) -> Object:
    status: Object = workload.get("status") or {}
    return status


def _name(workload: Object) -> str:
    return str(workload["metadata"]["name"])


def _replaces(workload: Object) -> str:
    notes = workload["metadata"].get("annotations") or {}
    return str(notes.get(kueue_workload.REPLACES, "")).rpartition("/")[2]


def _order(workload: Object) -> tuple[int, str, str]:
    spec, metadata = workload["spec"], workload["metadata"]
    return -spec.get("priority", 0), metadata["creationTimestamp"], metadata["name"]


def _is_admissible(workload: Object) -> bool:
    may = workload["spec"].get("active") is not False and not reserved(workload)
    waits = condition(workload, "Requeued").get("status") == "False"
    return may and not waits and not finished(workload)


def size(workload: Object) -> int:
    """Pods that a Workload asks for; what it has been given may be more until it shrinks."""
    return sum(each["count"] for each in workload["spec"]["podSets"])


def condition(workload: Object, kind: str) -> Object:
    """The condition, or an empty one."""
    found = _status(workload).get("conditions") or ()
    return next((each for each in found if each["type"] == kind), {})


def true(workload: Object, kind: str) -> bool:
    """Whether a condition is True."""
    return bool(condition(workload, kind).get("status") == "True")


def reserved(workload: Object) -> bool:
    """Whether it holds quota."""
    return true(workload, "QuotaReserved")


def finished(workload: Object) -> bool:
    """Whether it is over."""
    return true(workload, "Finished")


def evict(workload: Object, reason: str, message: str, now: datetime) -> None:
    """As anything does that evicts a Workload; who owns it must end the pods."""
    tell(workload, "Evicted", True, reason, message, now)
    for check in workload["status"].get("admissionChecks") or ():
        check["state"] = "Pending"


def tell(
    workload: Object, kind: str, status: bool, reason: str, message: str, now: datetime
) -> None:
    """Set a condition."""
    value, before = str(status), condition(workload, kind)
    same = before.get("status") == value
    told = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": before["lastTransitionTime"] if same else render(now),
    }
    others = [c for c in workload["status"].get("conditions") or () if c["type"] != kind]
    workload["status"]["conditions"] = [*others, told]
