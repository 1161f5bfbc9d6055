"""Volcano's Job (batch.volcano.sh/v1alpha1): its tasks as replica types.

https://github.com/volcano-sh/apis/blob/master/pkg/apis/batch/v1alpha1/job.go
"""

from __future__ import annotations

from typing import Any

from trainyard.conversion import foreign_common, torchx
from trainyard.conversion.field_tracking import CannotConvert, Fields
from trainyard.conversion.foreign_common import Object

_ENDS = {"CompleteJob": "successRules"}
_FAILS = ("AbortJob", "TerminateJob", "CompleteJob")
_RESTARTS = ("RestartJob", "RestartTask", "RestartPod")
_TOGETHER = "all pods of a job start together"
_PLUGINS = {
    "ssh": "replicas have no ssh; a job for deepspeed has (spec.config.customCommand)",
    "svc": "replicas find each other by $(service.TYPE[INDEX].host), not by /etc/volcano",
    "env": "the index of a replica is $(rank) in commands and variables, not VC_TASK_INDEX",
    "mpi": "a job for deepspeed starts mpirun with spec.config.customCommand",
}


_NO_RULE = "has no counterpart: see successRules, failureRules and restartPolicy"


def convert(fields: Fields) -> list[Object]:
    """The job."""
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    tasks = spec.mappings("tasks")
    if not tasks:
        raise CannotConvert(f"{spec.at('tasks')} is missing: there is nothing to run")
    plugins = spec.mapping("plugins")
    by_plugin = plugins.take("pytorch") is not None
    for name, why in _PLUGINS.items():
        plugins.drop(name, why)
    limit = spec.take("maxRetry", 3)
    rules: dict[str, list[Any]] = {}
    made: Object = {"replicaSpecs": [_task(task, limit, rules) for task in tasks]}
    total = sum(int(entry["replicas"]) for entry in made["replicaSpecs"])
    _volumes(spec, made["replicaSpecs"])
    _policies(spec, rules, "")
    one_role = torchx.role_spec(made["replicaSpecs"], lambda text: spec.add_note("tasks", text))
    made = made if one_role is None else one_role
    if is_torch := by_plugin or one_role is not None:
        for entry in made["replicaSpecs"]:
            entry["restartPolicy"] = entry["restartPolicy"]["policy"]
        made["runPolicy"] = {"backoffLimit": limit}
        if "ttlSecondsAfterFinished" in spec:
            seconds = spec.take("ttlSecondsAfterFinished")
            made["runPolicy"]["ttlSecondsAfterFinished"] = seconds
        if rules:
            spec.add_note("tasks", "policies that end the job are left out: rank 0 decides")
    else:
        made |= rules
    if "queue" in spec or "minAvailable" in spec:
        made |= foreign_common.scheduler(spec.take("queue", "default"))
    if (least := spec.take("minAvailable")) is not None and least != total:
        spec.add_note("minAvailable", f"all {total} pods start together, not {least} of them")
    spec.drop_all(
        {
            "schedulerName": "spec.scheduler says it, and the operator which one it is",
            "priorityClassName": "write a number, 0 to 100: spec.scheduler.t9kScheduler.priority",
            "ttlSecondsAfterFinished": "jobs of this kind stay until they are deleted",
        },
    )
    return [foreign_common.job("torchrun" if is_torch else "none", metadata, made)]


def _task(task: Fields, limit: Any, rules: dict[str, list[Any]]) -> Object:
    name = str(task.take("name", "task"))
    count = task.pod_count("replicas")
    template = task.mapping("template")
    pod = template.take("spec", {})
    policy = str(pod.pop("restartPolicy", "Never")) if isinstance(pod, dict) else "Never"
    own = template.mapping("metadata")
    metadata = {key: own.take(key) for key in ("labels", "annotations") if key in own}
    own.drop_all({"name": "pods are named by their job"})
    own_limit = task.take("maxRetry", limit)
    policy = _policies(task, rules, name, count) or policy
    task.drop_all(dict.fromkeys(("dependsOn", "minAvailable"), _TOGETHER))
    shown = {**({"metadata": metadata} if metadata else {}), "spec": pod}
    restart: Any = (
        {"policy": policy, "limit": own_limit} if policy != "Never" else {"policy": policy}
    )
    return {"type": name, "replicas": count, "restartPolicy": restart, "template": shown}


def _policies(fields: Fields, rules: dict[str, list[Any]], task: str, count: int = 0) -> str:
    """Add the finish rules that follow from the policies of a task, or of the job (task "").

    Returns the restart policy that follows from them, or "".
    """
    restart = ""
    for policy in fields.mappings("policies"):
        event, action = policy.take("event"), policy.take("action")
        events = policy.take("events") or [event]
        code = policy.take("exitCode")
        for each in events:
            text = ""
            if code is not None:
                text = "write it as spec.runPolicy.podFailurePolicy"
            elif each == "TaskCompleted" and action in _ENDS and task:
                rules.setdefault(_ENDS[action], []).append({task: list(range(count))})
            elif each == "PodFailed" and action in _FAILS and task:
                rules.setdefault("failureRules", []).extend({task: [n]} for n in range(count))
            elif each == "PodFailed" and action in _RESTARTS and task:
                restart = "OnFailure"
            elif each == "PodEvicted" and action in _RESTARTS:
                continue
            else:
                text = _NO_RULE
            if text:
                policy.add_note("action", f"{action} at {each or 'an exit code'}: {text}")
    return restart


def _volumes(spec: Fields, entries: list[Object]) -> None:
    """Mount the job's claims into every task."""
    for number, volume in enumerate(spec.mappings("volumes")):
        place, claim = volume.take("mountPath"), volume.take("volumeClaimName")
        if claim is None:
            volume.add_note("mountPath", "make a claim, and name it: volumeClaimName is missing")
        for entry in entries if claim else ():
            pod = entry["template"]["spec"]
            name = f"volume-{number}"
            source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            pod["volumes"] = [*pod.get("volumes", ()), source]
            for container in pod.get("containers", ()):
                mount = {"name": name, "mountPath": place}
                container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
