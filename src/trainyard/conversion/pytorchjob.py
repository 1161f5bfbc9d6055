"""Kubeflow's PyTorchJob (kubeflow.org/v1): plain, or under torchrun where its command or policy
says so.

https://github.com/kubeflow/training-operator/tree/release-1.9/pkg/apis/kubeflow.org/v1
"""

from __future__ import annotations

from typing import Any

from trainyard.conversion import foreign_common
from trainyard.conversion.field_tracking import CannotConvert, Fields
from trainyard.conversion.foreign_common import Object, Torchrun

_TYPES = {"Master": "master", "Worker": "worker"}
_CONTAINER = ("pytorch",)


def convert(fields: Fields) -> list[Object]:
    """The job."""
    for key in ("apiVersion", "kind"):
        fields.take(key)
    metadata, spec = foreign_common.metadata(fields), fields.into("spec")
    policy, beside = foreign_common.run_policy(spec.into("runPolicy"))
    replicas = spec.into("pytorchReplicaSpecs")
    entries = [_replica(replicas, name) for name in _TYPES if name in replicas]
    replicas.done()
    if not entries:
        raise CannotConvert(f"{replicas.at('Worker')} is missing: there are no replicas")
    processes = spec.take("nprocPerNode")
    elastic = spec.into("elasticPolicy")
    is_elastic = bool(elastic.keys())
    found = [_launch(entry, replicas, by_torchrun=is_elastic or processes) for entry in entries]
    config: Object = {}
    if any(found):
        config = _config(found, replicas)
    elif is_elastic or processes is not None:
        raise CannotConvert(
            f"{spec.at('elasticPolicy' if is_elastic else 'nprocPerNode')} needs a command that "
            "starts torchrun, or a Python script, in the first container: write it there"
        )
    if processes is not None:
        config["procPerNode"] = foreign_common.processes_of(processes)
    sizes = _elastic(elastic, config, sum(entry["replicas"] for entry in entries))
    spec.done()
    shown = {"torchrunConfig": config} if config else {}
    made = {**shown, "replicaSpecs": entries, **sizes, **policy, **beside}
    fields.done()
    return [foreign_common.job("torchrun", metadata, made)]


def _replica(replicas: Fields, name: str) -> Object:
    entry = replicas.into(name)
    found = {
        "type": _TYPES[name],
        "replicas": entry.take("replicas", 1),
        "restartPolicy": entry.take("restartPolicy", "OnFailure"),
        "template": foreign_common.template(entry, "pytorch"),
    }
    entry.done()
    return found


def _launch(entry: Object, replicas: Fields, *, by_torchrun: Any) -> Torchrun | None:
    """Give the training container torchrun's script as args, if it starts torchrun."""
    container = foreign_common.training(entry["template"], _CONTAINER)
    if container is None:
        return None
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    found = foreign_common.torchrun(words)
    if found is None and by_torchrun and len(words) > 1 and words[0].startswith("python"):
        found = Torchrun(words[1:])
    if found is None:
        if remark := foreign_common.plain_remark(words):
            replicas.remark(entry["type"].title(), remark)
        return None
    container.pop("command", None)
    container["args"] = found.words
    return found


def _config(found: list[Torchrun | None], replicas: Fields) -> Object:
    first = next(each for each in found if each is not None)
    if any(each is None or each.others != first.others for each in found):
        name = next(iter(_TYPES))
        raise CannotConvert(
            f"{replicas.at(name)}: its replicas do not all start torchrun in the same way; "
            "give all of them the same command"
        )
    if text := first.left_out():
        replicas.remark("Worker", text)
    return first.config()


def _elastic(policy: Fields, config: Object, replicas: int) -> Object:
    if not policy.keys():
        return {}
    found: Object = {"enabled": True}
    found |= {key: policy.take(key) for key in ("minReplicas", "maxReplicas") if key in policy}
    found["expectedReplicas"] = replicas
    if "maxRestarts" in policy:
        config["maxRestarts"] = policy.take("maxRestarts")
    if "nProcPerNode" in policy:
        config["procPerNode"] = foreign_common.processes_of(policy.take("nProcPerNode"))
    backend = policy.take("rdzvBackend")
    if backend in ("c10d", "etcd", "etcd-v2"):
        config["rdzvBackend"] = backend
    elif backend is not None:
        policy.remark("rdzvBackend", f"{backend} is not supported: c10d is used")
    foreign_common.told(
        policy,
        {
            "rdzvPort": "the launch makes its own rendezvous",
            "rdzvHost": "the launch makes its own rendezvous",
            "rdzvId": "the launch makes its own rendezvous",
            "metrics": "nothing scales a job by metrics; `trainyard scale` does by hand",
        },
    )
    return {"elastic": found}
