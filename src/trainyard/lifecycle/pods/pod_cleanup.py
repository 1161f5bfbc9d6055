"""What happens to the pods of a job that has ended, over and over until it is done.

Decision 27: the policy says which pods go. Whatever it says, nothing goes on running after a
failure: such a pod is stopped by its `activeDeadlineSeconds`, which keeps the pod and its log. When
the job's time is over, pods that go are stopped as well before they are deleted: a node that ends a
pod for its deadline need not wait for the whole grace period.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from trainyard.kinds.shared.workload import CleanUpPolicy, ReplicaType, Workload
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Action, Delete, Patch
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.replica_state import STOP_SECONDS, exit_of
from trainyard.lifecycle.replica_view import View


def clean_up(
    workload: Workload, pods: Iterable[Pod], *, failed: bool, overdue: bool
) -> list[Action]:
    """Stops and deletions still to be done. `overdue`: the job's deadline has passed."""
    stops: list[Action] = []
    deletions: list[Action] = []
    for pod in pods:
        if pod.deleting is not None:
            continue
        if _is_to_be_deleted(workload, pod, overdue=overdue):
            if overdue and pod.scheduled and not _is_over(pod) and not is_stop_requested(pod):
                stops.append(stop_pod(pod))
            deletions.append(Delete(PODS, pod.name, pod.uid))
        elif _is_to_be_stopped(workload, pod, failed=failed):
            if pod.scheduled or not failed:
                stops.append(stop_pod(pod))
            else:  # it would still start, and has no log to keep
                deletions.append(Delete(PODS, pod.name, pod.uid))
    return stops + deletions


def stop_all(pods: Iterable[Pod]) -> list[Action]:
    """Stop whatever runs, and keep it; what has not started goes, for it has no log."""
    return [
        stop_pod(pod) if pod.scheduled else Delete(PODS, pod.name, pod.uid)
        for pod in pods
        if pod.deleting is None and not _is_over(pod) and not is_stop_requested(pod)
    ]


def stop_sidecars(view: View) -> list[Patch]:
    """Stop pods whose main container has ended while others in them go on (decision 21)."""
    pods = (replica.pod for replica in view.not_running if replica.ended)
    return [
        stop_pod(pod)
        for pod in pods
        if pod is not None
        and pod.deleting is None
        and pod.phase == "Running"
        and not is_stop_requested(pod)
    ]


def stop_pod(pod: Pod) -> Patch:
    """Stop a pod and keep it."""
    return Patch(PODS, pod.name, pod.uid, {"spec": {"activeDeadlineSeconds": STOP_SECONDS}})


def expires_at(workload: Workload, completed: datetime | None) -> datetime | None:
    """When an ended job deletes itself."""
    if workload.ttl_seconds_after_finished is None or completed is None:
        return None
    return completed + timedelta(seconds=workload.ttl_seconds_after_finished)


def _is_to_be_deleted(workload: Workload, pod: Pod, *, overdue: bool) -> bool:
    match workload.clean_up:
        # Decision 27; WORKERS is `cleanUpWorkers`.
        case CleanUpPolicy.ALL:
            return True
        case CleanUpPolicy.UNFINISHED:
            if overdue and is_stop_requested(pod) and pod.phase == "Failed":
                return True  # stopped, but not deleted before the controller died
            return not _is_over(pod) and not _has_ended(workload, pod)
        case CleanUpPolicy.WORKERS:
            replica_type = workload.type_of.get(pod.type)
            return replica_type is None or deletes_ended(workload, replica_type)
        case CleanUpPolicy.NONE:
            return False


def deletes_ended(workload: Workload, replica_type: ReplicaType) -> bool:
    """Whether clean-up deletes pods that have ended, and not only those that go on."""
    if workload.clean_up is CleanUpPolicy.WORKERS:
        return not replica_type.is_launcher
    return workload.clean_up is CleanUpPolicy.ALL


def _is_to_be_stopped(workload: Workload, pod: Pod, *, failed: bool) -> bool:
    if _is_over(pod) or is_stop_requested(pod):
        return False
    # What still runs after a success is left, as documented, but for sidecars of what has ended.
    return failed or _has_ended(workload, pod)


def _is_over(pod: Pod) -> bool:
    return pod.phase in ("Succeeded", "Failed")


def is_stop_requested(pod: Pod) -> bool:
    """Whether we have asked for the pod's end by its `activeDeadlineSeconds`."""
    return pod.deadline_seconds == STOP_SECONDS


def _has_ended(workload: Workload, pod: Pod) -> bool:
    replica_type = workload.type_of.get(pod.type)
    return replica_type is not None and exit_of(pod, replica_type.main_container) is not None
