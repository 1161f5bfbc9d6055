"""Kubeflow's PyTorchJob (kubeflow.org/v1): plain, or under torchrun where its command or policy
says so.

https://github.com/kubeflow/training-operator/tree/release-1.9/pkg/apis/kubeflow.org/v1
"""

from __future__ import annotations

from typing import Any

from trainyard.conversion import foreign_common
from trainyard.conversion.field_tracking import CannotConvert, Fields
from trainyard.conversion.foreign_common import Object, TorchrunCommand

_TYPES = {"Master": "master", "Worker": "worker"}
_CONTAINER = ("pytorch",)


def convert(fields: Fields) -> list[Object]:
    """The job."""
    metadata, spec = foreign_common.metadata(fields), fields.mapping("spec")
    policy, beside = foreign_common.run_policy(spec.mapping("runPolicy"))
    replicas = spec.mapping("pytorchReplicaSpecs")
    entries = [_replica(replicas, name) for name in _TYPES if name in replicas]
    if not entries:
        raise CannotConvert(f"{replicas.at('Worker')} is missing: there are no replicas")
    processes = spec.take("nprocPerNode")
    elastic = spec.mapping("elasticPolicy")
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
        config["procPerNode"] = foreign_common.proc_per_node(processes)
    sizes = _elastic(elastic, config, sum(entry["replicas"] for entry in entries))
    shown = {"torchrunConfig": config} if config else {}
    made = {**shown, "replicaSpecs": entries, **sizes, **policy, **beside}
    return [foreign_common.job("torchrun", metadata, made)]


def _replica(replicas: Fields, name: str) -> Object:
    entry = replicas.mapping(name)
    return {
        "type": _TYPES[name],
        "replicas": entry.take("replicas", 1),
        "restartPolicy": entry.take("restartPolicy", "OnFailure"),
        "template": foreign_common.template(entry),
    }


def _launch(entry: Object, replicas: Fields, *, by_torchrun: Any) -> TorchrunCommand | None:
    """Give the training container torchrun's script as args, if it starts torchrun."""
    container = foreign_common.training_container(entry["template"], _CONTAINER)
    if container is None:
        return None
    words = foreign_common.command_of(container)
    found = foreign_common.parse_torchrun(words)
    if found is None and by_torchrun and len(words) > 1 and words[0].startswith("python"):
        found = TorchrunCommand(words[1:])
    if found is None:
        if remark := foreign_common.plain_command_note(words):
            replicas.add_note(entry["type"].title(), remark)
        return None
    container.pop("command", None)
    container["args"] = found.script
    return found


def _config(found: list[TorchrunCommand | None], replicas: Fields) -> Object:
    first = next(each for each in found if each is not None)
    if any(each is None or each.extra_options != first.extra_options for each in found):
        name = next(iter(_TYPES))
        raise CannotConvert(
            f"{replicas.at(name)}: its replicas do not all start torchrun in the same way; "
            "give all of them the same command"
        )
    if text := first.dropped_options_note():
        replicas.add_note("Worker", text)
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
        config["procPerNode"] = foreign_common.proc_per_node(policy.take("nProcPerNode"))
    backend = policy.take("rdzvBackend")
    if backend in ("c10d", "etcd", "etcd-v2"):
        config["rdzvBackend"] = backend
    elif backend is not None:
        policy.add_note("rdzvBackend", f"{backend} is not supported: c10d is used")
    policy.drop_all(
        {
            "rdzvPort": "the launch makes its own rendezvous",
            "rdzvHost": "the launch makes its own rendezvous",
            "rdzvId": "the launch makes its own rendezvous",
            "metrics": "nothing scales a job by metrics; `trainyard scale` does by hand",
        },
    )
    return {"elastic": found}
