"""Trainyard's kinds as an extension of the embedded cluster (see `embedded.cluster_extension`).

The only module that knows both sides. What judges or describes a job is imported with the first
job: a cluster is ready sooner without (decision 335).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from trainyard.embedded.cluster_extension import (
    Admission,
    CustomKind,
    Extension,
    Gang,
    GangRules,
    Object,
    QueueKinds,
)
from trainyard.embedded.resources.resource_table import Resources
from trainyard.kinds.kind import Kind
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.child_names import CHANNEL_PATH

_SCALE_REFUSAL = "the job cannot be scaled: it is not elastic; create it with spec.elastic.enabled"
_AS_POD_OR_JOB = "run it as a Pod, or as a job of batch.tensorstack.dev"
_OF_QUEUE = "a Queue says what its jobs may use"
_ALTERNATIVES = {
    **dict.fromkeys(
        (
            "replicationcontrollers",
            "deployments.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "replicasets.apps",
        ),
        _AS_POD_OR_JOB,
    ),
    **dict.fromkeys(("resourcequotas", "limitranges"), _OF_QUEUE),
    "jobs.batch": "`trainyard convert` makes a job of batch.tensorstack.dev of it",
    "cronjobs.batch": "run it as a job of batch.tensorstack.dev",
    "priorityclasses.scheduling.k8s.io": (
        "priorities are those of the Queue and the PodGroup, so leave it out"
    ),
}

_REFERENCE = ("apiVersion", "kind", "name", "namespace", "uid")
_SHOWN_STATUS_TEXTS = frozenset(
    [
        "state",
        "selector",
        "specHash",
        "action",
        "type",
        "url",
        "allocated.*",
        "tasks.type",
        "tasks.replicas.name",
        "tasks.replicas.uid",
        "tasks.replicas.phase",
        "tasks.replicas.reason",
        "tasks.replicas.containers.name",
        "tasks.replicas.containers.role",
        "tasks.replicas.containers.state",
        "tasks.replicas.containers.reason",
        "attempts.replica",
        "attempts.reason",
        "goodput.state",
        "progress.replica",
        "progress.source",
        "stragglers.replica",
        "nodeCheck.state",
        "nodeCheck.badNodes.replica",
        "nodeCheck.badNodes.node",
        "nodeCheck.avoided",
        "tensorboard.name",
        "tensorboard.reason",
        "tensorboard.action",
        "tensorboard.type",
        "tensorboard.url",
        "pod.phase",
        *(f"tensorboard.dependent.{each}" for each in _REFERENCE),
        *(f"pod.reference.{each}" for each in _REFERENCE),
    ]
)
_OWN_MESSAGE_REASONS = frozenset(
    [
        "NotFinished",
        "Paused",
        "Resumed",
        "NameConflict",
        "NoGangScheduler",
        "WaitsForAdmission",
        "Evicted",
        "FlavorUnknown",
        "Finished",
        "Stopped",
        "NewReplica",
        "Start",
        "Running",
        "Scaled",
        "Admitted",
        "SpecDrift",
        "SuccessfulCreate",
    ]
)


@cache
def _load_kinds() -> Sequence[CustomKind]:
    return tuple(
        CustomKind(
            resource=kind.resource,
            load_definition=partial(_definition, kind),
            admit=_admit,
            short_names=kind.short_names,
            scale_refusal=_SCALE_REFUSAL if kind.elastic else "",
            queue_path=("spec", "scheduler", "t9kScheduler", "queue") if kind.is_job else (),
            gang=_gang_rules(kind) if kind.is_job else None,
        )
        for kind in KINDS.values()
    )


def _definition(kind: Kind) -> Object:
    return kind.crd


def _admit(obj: Object, old: Object | None) -> Admission:
    from trainyard.kinds import kind_admission

    return kind_admission.admit(obj, old)


def _gang_rules(kind: Kind) -> GangRules:
    return GangRules(partial(_describe_gang, kind), _replica_phases, _has_started)


def _describe_gang(kind: Kind, obj: Object) -> Gang | None:
    from trainyard.kinds.shared.job_settings import Settings
    from trainyard.kinds.shared.workload import ReplicaKey, Scope, Workload

    model: Any = kind.model.model_validate(obj)
    workload: Workload = kind.describe(model, Settings())
    if workload.min_running_replicas < 2:
        return None
    first = workload.keys[: workload.min_running_replicas]
    pod_by_type = {
        type_: workload.build_pod(ReplicaKey(type_, 0), 1, pod_group="", resumed=False)
        for type_ in {key.type for key in first}
    }
    return Gang(
        names=tuple(workload.pod_name(key) for key in workload.keys),
        size=workload.min_running_replicas,
        pods=tuple(pod_by_type[key.type] for key in first),
        joins_alone=workload.scope is Scope.REPLICA,
    )


def _replica_phases(obj: Object) -> Sequence[str]:
    tasks = (obj.get("status") or {}).get("tasks") or ()
    return [replica.get("phase", "") for task in tasks for replica in task.get("replicas") or ()]


def _has_started(obj: Object) -> bool:
    return bool((obj.get("status") or {}).get("startTime"))


EXTENSION = Extension(
    load_kinds=_load_kinds,
    queues=QueueKinds(
        queues=KINDS["Queue"].resource,
        groups=KINDS["PodGroup"].resource,
        group_label=labels.GROUP_NAME,
        queue_label=labels.QUEUE,
        role_label=labels.ROLE,
        default_queue=labels.DEFAULT_QUEUE,
    ),
    owner_label=labels.JOB_UID,
    scheduler_names=(labels.T9K_SCHEDULER_NAME,),
    internal_mount_paths=(CHANNEL_PATH,),
    shown_status_texts=_SHOWN_STATUS_TEXTS,
    own_message_reasons=_OWN_MESSAGE_REASONS,
    alternatives=_ALTERNATIVES,
)
"""Every kind that is installed."""

RESOURCES = Resources(extension=EXTENSION)
"""What a cluster with this extension serves."""
