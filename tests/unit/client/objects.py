"""Objects as an API server holds them, for the tests of commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView
from trainyard.diagnosis import Situation
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.child_names import base_name

NOW = datetime(2026, 8, 2, 12, 0, 0, tzinfo=UTC)
UID = "4d1c6b0a-0000-4000-8000-000000000001"
Object = dict[str, Any]


def ago(seconds: float) -> str:
    """A time of an object, so many seconds before NOW (or after, if negative)."""
    moment = NOW - timedelta(seconds=seconds)
    return moment.isoformat().replace("+00:00", "Z")


def job(
    phase: str = "",
    *,
    name: str = "digits",
    kind: str = "PyTorchTrainingJob",
    spec: Object | None = None,
    age: float = 60,
    deleting: float | None = None,
    finalizers: tuple[str, ...] = (),
    **status: Any,
) -> Object:
    """A stored job; without phase and status, one that no controller has seen."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": UID,
        "creationTimestamp": ago(age),
    }
    if deleting is not None:
        metadata["deletionTimestamp"] = ago(deleting)
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    obj: Object = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec or {},
    }
    if phase:
        status["phase"] = phase
    if status:
        obj["status"] = status
    return obj


def found(obj: Object) -> Job:
    """A stored job as commands hold it."""
    return Job(KINDS[obj["kind"]], obj)


def views(*pods: Object) -> list[PodView]:
    """Pods as commands hold them."""
    return [PodView(pod) for pod in pods]


def condition(kind: str, status: str, reason: str = "-", message: str = "") -> Object:
    """One of a job's conditions."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(5),
    }


def pod_name(replica: str, name: str = "digits") -> str:
    """The pod of a replica such as `worker-0`."""
    return f"{base_name(name, UID)}-{replica}"


def task(*phases: str, kind: str = "worker", **more: Any) -> Object:
    """A replica type whose replicas are in these phases."""
    replicas = [
        {"name": pod_name(f"{kind}-{index}"), "uid": f"pod-{kind}-{index}", "phase": phase}
        for index, phase in enumerate(phases)
    ]
    return {"type": kind, "replicas": replicas, **more}


def pod(
    replica: str = "worker-0",
    phase: str = "Pending",
    *,
    node: str = "here",
    containers: tuple[str, ...] = ("pytorch",),
    states: dict[str, Object] | None = None,
    conditions: tuple[Object, ...] = (),
    labels: Object | None = None,
    deleting: float | None = None,
    reason: str = "",
) -> Object:
    """A pod of the job; `states` are the containers' by name."""
    kind, _, index = replica.rpartition("-")
    metadata: Object = {
        "name": pod_name(replica),
        "namespace": "default",
        "uid": f"pod-{replica}",
        "creationTimestamp": ago(30),
        "labels": {
            "trainyard.dev/job-uid": UID,
            "trainyard.dev/replica-type": kind,
            "replica-index": index,
            **(labels or {}),
        },
    }
    if deleting is not None:
        metadata |= {"deletionTimestamp": ago(deleting), "deletionGracePeriodSeconds": 5}
    spec: Object = {"containers": [{"name": each, "image": "python"} for each in containers]}
    if node:
        spec["nodeName"] = node
    status: Object = {"phase": phase, "conditions": list(conditions)}
    if states is not None:
        status["containerStatuses"] = [
            {"name": each, "image": "python", "state": state} for each, state in states.items()
        ]
    if reason:
        status["reason"] = reason
    return {"metadata": metadata, "spec": spec, "status": status}


def unplaced(replica: str, message: str) -> Object:
    """A pod that the scheduler has refused."""
    refusal = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return pod(replica, node="", conditions=(refusal,))


def event(about: str, reason: str, message: str, *, warns: bool = True, age: float = 5) -> Object:
    """An event on the object of this name."""
    return {
        "metadata": {"name": f"{about}.{reason}"},
        "involvedObject": {"kind": "Pod", "name": about, "namespace": "default"},
        "type": "Warning" if warns else "Normal",
        "reason": reason,
        "message": message,
        "count": 1,
        "lastTimestamp": ago(age),
    }


def situation(
    obj: Object,
    pods: Iterable[Object] = (),
    events: Sequence[Object] = (),
    *,
    now: datetime = NOW,
    **more: Any,
) -> Situation:
    """What is known of a job, from stored objects."""
    return Situation(found(obj), views(*pods), events, now=now, **more)
