"""Choosing a replica of a job and a container in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.client.jobs import Found, Object, in_order, replica_of
from trainyard.client.target import CommandError
from trainyard.kinds.shared import labels
from trainyard.kinds.table import JOB_KINDS

_TRAINING = ("pytorch", "python", "worker", "launcher")
"""Names by which the kinds know their training container, where there are several."""
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def choose_pod(job: Found, pods: Sequence[Object], replica: str = "") -> Object:
    """The pod of `replica` (`worker-0`, or the pod's name); without one, that of rank 0."""
    if not pods:
        raise CommandError(
            f"{job} has no pods ({job.phase}); `trainyard explain {job.name}` tells why"
        )
    if not replica:
        return next((pod for pod in in_order(pods) if _is_master(pod)), _first(job, pods))
    for pod in pods:
        name = pod["metadata"]["name"]
        if replica in (name, replica_of(name, job)):
            return pod
    known = ", ".join(replica_of(pod["metadata"]["name"], job) for pod in pods[:8])
    more = ", …" if len(pods) > 8 else ""
    raise CommandError(f"{job} has no replica {replica}; there are {known}{more}")


def _is_master(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(labels.JOB_ROLE) == labels.MASTER_ROLE


def _first(job: Found, pods: Sequence[Object]) -> Object:
    """The first replica in the order of the job's status."""
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    for task in job.status.get("tasks") or ():
        for replica in task.get("replicas") or ():
            if replica.get("name") in by_name:
                return by_name[replica["name"]]
    return in_order(pods)[0]


def training_container(pod: Mapping[str, Any]) -> str:
    """The container that a user means who names none."""
    chosen = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    names = [container["name"] for container in pod["spec"]["containers"]]
    if chosen in names:
        return str(chosen)
    marks = pod["metadata"].get("labels") or {}
    component = marks.get(labels.COMPONENT)
    kind = next((each for each in JOB_KINDS.values() if each.singular == component), None)
    if kind is not None:
        return kind.training_container(marks.get(labels.REPLICA_TYPE, ""), names)
    return next((name for name in _TRAINING if name in names), str(names[0]))


def container_statuses(pod: Mapping[str, Any]) -> list[Object]:
    """Of all containers that the node knows of."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def failed_init_container(pod: Mapping[str, Any]) -> str:
    """The init container that keeps the training container from starting; empty if none does."""
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return str(status["name"])
    return ""
