"""All replicas of a job, sorted out once, so that every policy reads instead of searching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from trainyard.kinds.shared.pods.container_roles import INIT, SIDECAR
from trainyard.kinds.shared.reasons import GIVEN_UP
from trainyard.kinds.shared.workload import ReplicaKey, ReplicaType, Workload
from trainyard.lifecycle.internal_status import InternalStatus
from trainyard.lifecycle.observed import Observed, Pod
from trainyard.lifecycle.replica_state import (
    DEADLINE_EXCEEDED,
    STOP_SECONDS,
    Exit,
    Ruling,
    State,
    deletion_requested,
    exit_of,
)
from trainyard.lifecycle.restart import pod_failure_rules

Entry = dict[str, Any]
"""One element of `status.tasks[].replicas`."""


class Replica(NamedTuple):
    """A wanted replica. `pod` is that of the attempt wanted; `old` one that is in its place."""

    key: ReplicaKey
    type: ReplicaType
    name: str
    state: State
    pod: Pod | None
    old: Pod | None
    exit: Exit | None
    entry: Entry | None
    """What status said of the wanted attempt's pod; None when it has not been seen."""

    @property
    def short_name(self) -> str:
        """`worker-1`."""
        return f"{self.key.type}-{self.key.ordinal}"

    @property
    def ended(self) -> bool:
        """Whether it ran to an end, good or bad."""
        return self.state is State.SUCCEEDED or self.state is State.FAILED


class View(NamedTuple):
    """The replicas by rank; those of them that do not run, which most policies are about: they
    have yet to start, or have ended; and pods that belong to none of them (an elastic job shrank).
    """

    replicas: list[Replica]
    not_running: list[Replica]
    surplus: list[Pod]

    @property
    def existing(self) -> int:
        """How many pods the job has, whether they are wanted or on their way out."""
        missing = sum(1 for r in self.not_running if r.pod is None and r.old is None)
        return len(self.replicas) - missing + len(self.surplus)

    def rank0_is(self, state: State) -> bool:
        """Whether the first replica is in this state."""
        return bool(self.replicas) and self.replicas[0].state is state


def end_order(replica: Replica) -> float:
    """When it ended, in seconds. What vanished unseen is taken to have come first."""
    end = replica.exit or Exit()
    vanished = end.free or (end.ruling is not None and end.ruling.taken)
    unknown = float("-inf") if vanished else float("inf")
    return end.at.timestamp() if end.at else unknown


def entries_of(status: Mapping[str, Any]) -> dict[str, Entry]:
    """What status says of each replica, by pod name."""
    return {
        entry["name"]: entry
        for task in status.get("tasks") or ()
        for entry in task.get("replicas") or ()
    }


def sort_replicas(
    workload: Workload, internal: InternalStatus, entries: Mapping[str, Entry], observed: Observed
) -> View:
    """Sort pods to replicas. `entries` is what status said before."""
    # Decision 12: names are shared across kinds, the owner's UID is not.
    pods = {pod.name: pod for pod in observed.pods if pod.owner_uid == workload.uid}
    records, floor, lost = internal.records, internal.floor, observed.lost_nodes
    rules = workload.pod_failure_rules
    stopped = workload.paused or internal.paused or internal.evicted or bool(internal.ended)
    replicas, not_running = [], []
    for replica_type, key, name in workload.replicas_by_rank:
        pod = pods.pop(name, None)
        record = records.get(name)
        entry = entries.get(name)
        if entry is not None and not entry.get("uid"):
            entry = None
        old = None
        if pod is not None and (
            pod.attempt < (record.attempt if record else floor)
            or _came_late(pod, entry, ended=bool(internal.ended))
        ):
            pod, old = None, pod
        main = replica_type.main_container
        state, end = _state_of_pod(pod, entry, main, lost, ended=bool(internal.ended))
        if record is not None and record.ruling is not None:
            state, end = _as_ruled(state, end, entry, record.ruling)
        elif rules and end is not None and _are_rules_asked(state, end, stopped=stopped):
            containers = pod.container_statuses if pod else (entry or {}).get("containers") or ()
            state, end = pod_failure_rules.apply_rules(
                rules, replica_type, state, end, pod, containers
            )
        replica = Replica(key, replica_type, name, state, pod, old, end, entry)
        replicas.append(replica)
        if state is not State.RUNNING:
            not_running.append(replica)
    return View(replicas, not_running, list(pods.values()))


def _came_late(pod: Pod, entry: Entry | None, *, ended: bool) -> bool:
    """Whether the pod was created by a request that arrived when that of the same attempt had
    ended, and was gone."""
    return entry is not None and entry["uid"] != pod.uid and _has_ended(entry, ended=ended)


def _state_of_pod(
    pod: Pod | None, entry: Entry | None, main: str | None, lost: frozenset[str], *, ended: bool
) -> tuple[State, Exit | None]:
    """`ended`: the job has, so that nothing is restarted any more.

    Until then what costs nothing is told as taken away, never as failed: the next pass, which may
    see less of the pod, takes what is told as failed for the replica's own end.
    """
    if pod is None:
        return _state_from_entry(entry, main, ended=ended)
    has_ended = entry is not None and entry["uid"] == pod.uid and _has_ended(entry, ended=ended)
    if not has_ended and pod.deleting is None and pod.phase == "Running" and _all_run(pod):
        return (State.UNKNOWN if pod.node in lost else State.RUNNING), None
    end = exit_of(pod, main)
    if entry is not None and has_ended:
        return _as_reported(entry, end, main, ended=ended)
    if end is not None and end.code == 0 and _answered_to_stop(pod, ended=ended):
        end = replace(end, code=None, reason=DEADLINE_EXCEEDED)
    if end is not None and (not end.free or (ended and end.code != 0)):
        return (State.SUCCEEDED if end.code == 0 else State.FAILED), end
    if end is not None or pod.deleting is not None:
        taker = pod.disruption or pod.reason or "Deleted"
        return State.TAKEN, Exit(reason=taker, at=_taken_at(pod, end), free=True)
    # Decision 33. Kubernetes sets the phase Unknown no more (PodUnknown in k8s.io/api/core/v1), and
    # tells of a dead node by its condition Ready.
    if pod.phase == "Unknown" or pod.node in lost:
        return State.UNKNOWN, None
    # The phase is Running as soon as one container runs; others may still pull their images.
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
    if pod.phase == "Running":
        return (State.PENDING if _any_waits(pod) else State.RUNNING), None
    return (State.PENDING if pod.scheduled else State.CREATING), None


def _as_ruled(
    state: State, end: Exit | None, entry: Entry | None, ruling: Ruling
) -> tuple[State, Exit | None]:
    """What failed for good by a rule is not judged again, by less than was seen then."""
    if end is None or state not in (State.FAILED, State.TAKEN):
        return state, end
    reason = (entry or {}).get("reason") or end.reason
    return State.FAILED, replace(end, free=False, reason=reason, ruling=ruling)


def _are_rules_asked(state: State, end: Exit, *, stopped: bool) -> bool:
    """Whether rules of `podFailurePolicy` are asked. While a job is paused, or has ended, nothing
    is lost with a pod that goes: it is deleted anyway. Nor of what was given up as it ran."""
    if (end.free and stopped) or end.reason in GIVEN_UP:
        return False
    return state is State.FAILED or state is State.TAKEN


def _all_run(pod: Pod) -> bool:
    """Whether nothing in the pod has ended or waits: by far the most frequent case."""
    return all(container.state == "Running" for container in pod.containers)


def _any_waits(pod: Pod) -> bool:
    return any(c.state == "Waiting" and not c.is_init for c in pod.containers)


_ENDED = ("Succeeded", "Failed")


def _has_ended(entry: Entry, *, ended: bool) -> bool:
    """Whether status told its end. `ended`: the job has, whose clean-up deletes what failed."""
    return entry["phase"] in _ENDED or (ended and has_failed(entry))


def has_failed(entry: Entry) -> bool:
    """Whether its end was a failure, also where its pod was deleted after the end of its job."""
    return entry["phase"] == "Failed" or (entry["phase"] == "Deleted" and "reason" in entry)


def _answered_to_stop(pod: Pod, *, ended: bool) -> bool:
    """Whether an exit 0 may be an answer to SIGTERM, which says nothing about the training
    (decision 55): after the job's end, or the pod's own time, it was asked to end."""
    if pod.phase != "Running":
        return pod.phase == "Failed" and pod.reason == DEADLINE_EXCEEDED
    return ended and pod.deadline_seconds == STOP_SECONDS


def _as_reported(
    entry: Entry, end: Exit | None, main: str | None, *, ended: bool
) -> tuple[State, Exit | None]:
    """What status told as the replica's own end stays so, whatever becomes of its pod."""
    state, remembered = _state_from_entry(entry, main, ended=ended)
    if end is None or (remembered is not None and remembered.reason in GIVEN_UP):
        return state, remembered
    return state, replace(end, free=False)


def _taken_at(pod: Pod, end: Exit | None) -> datetime | None:
    requested = deletion_requested(pod)
    return end.at if requested is None and end is not None else requested


def _state_from_entry(
    entry: Entry | None, main: str | None, *, ended: bool = False
) -> tuple[State, Exit | None]:
    """A replica whose pod is not there: what it was when it was seen last."""
    if entry is None:
        return State.CREATING, None
    if ended and has_failed(entry):
        return State.FAILED, _exit_from_entry(entry, main)
    match entry.get("phase"):
        case "Succeeded":
            return State.SUCCEEDED, Exit(code=0)
        case "Failed":
            return State.FAILED, _exit_from_entry(entry, main)
        # It did not end, and is gone: somebody else deleted it (decision 24).
        case _:
            return State.TAKEN, Exit(reason="Deleted", free=True)


def _exit_from_entry(entry: Entry, main: str | None) -> Exit:
    """A sidecar's end is none of the replica's; the container that decides comes first."""
    if entry.get("reason") in GIVEN_UP:
        return Exit(reason=entry["reason"])
    failed = [
        each
        for each in entry.get("containers") or ()
        if each.get("exitCode") and each.get("role") != SIDECAR
    ]
    for container in sorted(failed, key=lambda each: each.get("name") != main):
        init = container["name"] if container.get("role") == INIT else ""
        reason = container.get("reason", "Error")
        return Exit(code=container["exitCode"], reason=reason, init_container=init)
    return Exit(reason=entry.get("reason", "Error"))
