"""What is written into a job's Workload of Kueue, as Kueue's own job reconciler does it.

Decisions 171 and 172.
https://github.com/kubernetes-sigs/kueue/blob/main/pkg/controller/jobframework/reconciler.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from trainyard.kinds.shared.workload import Workload
from trainyard.kube.object_conditions import find_condition
from trainyard.lifecycle.actions import Action, Create, Delete, Patch, Plan
from trainyard.lifecycle.kueue import kueue_admission
from trainyard.lifecycle.kueue.kueue_admission import Admission
from trainyard.lifecycle.observed import Observed, Owned
from trainyard.schema.times import parse, render

_REQUEUED_AT_ONCE = ("Preempted", "NodeFailures")
"""Evictions after which the Workload goes straight back into its queue; after others Kueue decides
when (a backoff, a queue that is stopped, a Workload that is deactivated)."""
_MAX_MESSAGE = 32768
"""Characters that a condition's message may have."""


def delete_workloads(standing: Admission | None) -> Iterator[Delete]:
    """The job is paused, and has no pods any more: it holds no quota, and stands in no queue."""
    if standing is None:
        return
    for owned in (standing.current, standing.pending, *standing.obsolete):
        if owned is not None and not owned.deleting:
            yield Delete(owned.resource, owned.name, owned.uid)


def request_quota(admission: Admission, *, surplus: bool) -> Iterator[Action]:
    """Create the Workload, or have it ask for what the job wants now (decision 172).

    `surplus`: pods are still there that the job does not want any more.
    """
    for owned in admission.obsolete:
        yield Delete(owned.resource, owned.name, owned.uid)
    request, current, pending = admission.request, admission.current, admission.pending
    if current is None:
        yield _create(admission)
        return
    wanted, has = dict(request.counts), kueue_admission.counts_of(current)
    if pending is not None:
        if _fits(wanted, has):
            yield Delete(pending.resource, pending.name, pending.uid)
        elif kueue_admission.counts_of(pending) != wanted and not kueue_admission.is_true(
            pending, "QuotaReserved"
        ):
            yield from _resize(pending, wanted)
    elif has != wanted and not kueue_admission.is_true(current, "QuotaReserved"):
        yield from _resize(current, wanted)
    elif not admission.is_admitted:
        return
    elif not _fits(wanted, has):
        yield _create(admission, replaces=current.name)
    elif has != wanted and not surplus:
        yield from _resize(current, wanted)


def _fits(wanted: Mapping[str, int], has: Mapping[str, int]) -> bool:
    return all(count <= has.get(name, 0) for name, count in wanted.items())


def _create(admission: Admission, replaces: str = "") -> Create:
    request, name = admission.request, admission.next_name
    build = partial(request.manifest, name, request.counts, replaces)
    adopts = request.takes_over_unowned and name == request.name
    return Create(request.resource, name, build, request.generated, adopts)


def plan_multikueue(workload: Workload, observed: Observed) -> Plan:
    """For a job that MultiKueue sends to another cluster: its Workload, and nothing else (decision
    173)."""
    standing = kueue_admission.find_admission(workload, observed)
    if standing is None or standing.current is not None or standing.obsolete:
        return Plan(None)
    return Plan(None, (_create(standing),))


def _resize(owned: Owned, wanted: Mapping[str, int]) -> Iterator[Patch]:
    """Counts only: the templates beside them may be those of an earlier version of ours."""
    steps = [
        {"op": "replace", "path": f"/spec/podSets/{index}/count", "value": wanted.get(name, 0)}
        for index, (name, count) in enumerate(kueue_admission.counts_of(owned).items())
        if count != wanted.get(name, 0)
    ]
    if steps:
        yield Patch(owned.resource, owned.name, owned.uid, steps)


def return_quota(admission: Admission, now: datetime) -> Iterator[Patch]:
    """Once no pod is left after an eviction: return the quota, and wait for the next admission."""
    owned = admission.current
    if (
        owned is None
        or not kueue_admission.is_true(owned, "Evicted")
        or not kueue_admission.is_true(owned, "QuotaReserved")
    ):
        return
    evicted = find_condition(owned.status, "Evicted")
    reason, message = evicted.get("reason", "Evicted"), evicted.get("message", "")
    again = reason in _REQUEUED_AT_ONCE
    changes = [
        _condition("Requeued", again, reason, message),
        _condition("QuotaReserved", False, "Pending", message),
        _condition("Admitted", False, "NoReservation", "The workload has no reservation"),
    ]
    if find_condition(owned.status, "PodsReady"):
        changes.append(_condition("PodsReady", False, "WaitForStart", _NOT_READY))
    status: dict[str, Any] = {"admission": None}
    since = parse(find_condition(owned.status, "Admitted").get("lastTransitionTime"))
    if kueue_admission.is_true(owned, "Admitted") and since is not None:
        before = owned.status.get("accumulatedPastExecutionTimeSeconds") or 0
        spent = max(int((now - since).total_seconds()), 0)
        status["accumulatedPastExecutionTimeSeconds"] = before + spent
    yield _patch_conditions(owned, changes, now, status)


def finish_workloads(
    workload: Workload, observed: Observed, now: datetime, *, failed: bool, message: str
) -> Iterator[Patch]:
    """The job has ended: so has its Workload, and its quota is free."""
    standing = kueue_admission.find_admission(workload, observed)
    if standing is None:
        return
    reason = "Failed" if failed else "Succeeded"
    live = (standing.current, standing.pending, *standing.obsolete)
    for owned in live:
        if owned is not None and not kueue_admission.is_true(owned, "Finished"):
            yield _patch_conditions(owned, [_condition("Finished", True, reason, message)], now, {})


_READY = "All pods reached readiness and the workload is running"
_NOT_READY = "Not all pods are ready or succeeded"
_RECOVERS = "At least one pod has failed, waiting for recovery"


def report_pods_ready(owned: Owned, now: datetime, *, ready: bool) -> Iterator[Patch]:
    """Whether all pods run or have succeeded, by which Kueue judges (`waitForPodsReady`)."""
    before = find_condition(owned.status, "PodsReady")
    was_ready = before.get("status") == "True"
    recovers = before.get("reason") in ("WaitForRecovery", "Recovered")
    if ready:
        if not was_ready:
            reason = "Recovered" if recovers else "Started"
            yield _patch_conditions(owned, [_condition("PodsReady", True, reason, _READY)], now, {})
    elif was_ready:
        yield _patch_conditions(
            owned, [_condition("PodsReady", False, "WaitForRecovery", _RECOVERS)], now, {}
        )
    elif not before:
        yield _patch_conditions(
            owned, [_condition("PodsReady", False, "WaitForStart", _NOT_READY)], now, {}
        )


def _condition(kind: str, status: bool, reason: str, message: str) -> dict[str, Any]:
    value = "True" if status else "False"
    return {"type": kind, "status": value, "reason": reason, "message": message[:_MAX_MESSAGE]}


def _patch_conditions(
    owned: Owned, changes: Sequence[Mapping[str, Any]], now: datetime, status: Mapping[str, Any]
) -> Patch:
    """A merge patch replaces the list of conditions, and so holds for this version only."""
    conditions = {each["type"]: each for each in owned.status.get("conditions") or ()}
    for change in changes:
        before = conditions.get(change["type"]) or {}
        same = before.get("status") == change["status"]
        at = before.get("lastTransitionTime") if same else None
        generation = {"observedGeneration": owned.generation} if owned.generation else {}
        conditions[change["type"]] = {
            **change,
            "lastTransitionTime": at or render(now),
            **generation,
        }
    patch = {"status": {**status, "conditions": list(conditions.values())}}
    return Patch(owned.resource, owned.name, owned.uid, patch, "status", owned.resource_version)
