"""What happens to the pods of a job that has ended, over and over until it is done.

The clean-up policy says which pods go. Whatever it says, nothing goes on running after a failure:
such a pod is stopped by its `activeDeadlineSeconds`, which keeps the pod and its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from trainyard.lifecycle.actions import Action, Delete, Patch
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.outcomes import exit_of
from trainyard.workloads.resources import PODS
from trainyard.workloads.workload import CleanUpPolicy, Workload

STOP_SECONDS = 1
"""The smallest `activeDeadlineSeconds`: an active pod is stopped at once."""


def clean_up(workload: Workload, pods: Iterable[Pod], *, failed: bool) -> list[Action]:
    """Deletions and stops still to be done."""
    actions: list[Action] = []
    for pod in pods:
        if pod.deleting is not None:
            continue
        if _goes(workload, pod):
            actions.append(Delete(PODS, pod.name, pod.uid))
        elif _must_stop(workload, pod, failed=failed):
            actions.append(_stop(pod, failed=failed))
    return actions


def stop_helpers(pod: Pod) -> Patch | None:
    """Stop a pod whose main container has ended while others in it go on."""
    if pod.deleting is not None or pod.phase != "Running" or pod.deadline_seconds == STOP_SECONDS:
        return None
    return stop(pod)


def stop(pod: Pod) -> Patch:
    """Stop a pod and keep it."""
    return Patch(PODS, pod.name, pod.uid, {"spec": {"activeDeadlineSeconds": STOP_SECONDS}})


def expiry(workload: Workload, completed: datetime | None) -> datetime | None:
    """When an ended job deletes itself."""
    if workload.ttl_seconds_after_finished is None or completed is None:
        return None
    return completed + timedelta(seconds=workload.ttl_seconds_after_finished)


def _stop(pod: Pod, *, failed: bool) -> Action:
    """A pod that no node has yet would still start, and has no log to keep."""
    if failed and not pod.scheduled:
        return Delete(PODS, pod.name, pod.uid)
    return stop(pod)


def _goes(workload: Workload, pod: Pod) -> bool:
    match workload.clean_up:
        case CleanUpPolicy.ALL:
            return True
        case CleanUpPolicy.UNFINISHED:
            return not _is_over(pod) and not _has_ended(workload, pod)
        case CleanUpPolicy.WORKERS:
            replica_type = workload.type_of.get(pod.type)
            return replica_type is None or not replica_type.is_launcher
        case CleanUpPolicy.NONE:
            return False


def _must_stop(workload: Workload, pod: Pod, *, failed: bool) -> bool:
    if _is_over(pod) or pod.deadline_seconds == STOP_SECONDS:
        return False
    return failed or _has_ended(workload, pod)


def _is_over(pod: Pod) -> bool:
    return pod.phase in ("Succeeded", "Failed")


def _has_ended(workload: Workload, pod: Pod) -> bool:
    replica_type = workload.type_of.get(pod.type)
    return replica_type is not None and exit_of(pod, replica_type.main_container) is not None
