"""Builders of small valid manifests, changed by the tests."""

from __future__ import annotations

import copy
from typing import Any

import yaml

API = "batch.tensorstack.dev/v1beta1"


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container with an image."""
    return {"name": name, "image": "image:1", **fields}


def template(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """A pod template."""
    return {"spec": {"containers": list(containers) or [container()], **pod}}


def job(kind: str, spec: dict[str, Any], name: str = "mnist") -> dict[str, Any]:
    """A job of a kind."""
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name},
        "spec": copy.deepcopy(spec),
    }


def pytorch(**spec: Any) -> dict[str, Any]:
    """Four plain workers."""
    worker = {"type": "worker", "replicas": 4, "template": template(container(args=["train.py"]))}
    return job("PyTorchTrainingJob", {"replicaSpecs": [worker], **spec})


def deepspeed(**spec: Any) -> dict[str, Any]:
    """Two workers that run a script."""
    base = {
        "config": {"run": {"python": ["train.py"]}},
        "worker": {"replicas": 2, "template": template(container("worker"))},
    }
    return job("DeepSpeedJob", {**base, **spec})


def colossalai(**spec: Any) -> dict[str, Any]:
    """A launcher and two workers."""
    base = {
        "torchConfig": {"script": ["train.py"]},
        "replicaSpecs": [
            {"type": "launcher", "template": {}},
            {"type": "worker", "replicas": 2, "template": template(container("worker"))},
        ],
    }
    return job("ColossalAIJob", {**base, **spec})


def colossalai_old(**worker: Any) -> dict[str, Any]:
    """The same in the old layout."""
    base = {
        "replicas": 2,
        "procPerWorker": 1,
        "command": ["train.py"],
        "torchArgs": [],
        "template": template(container("worker")),
    }
    launcher = {"image": "image:1", "workingDir": "/work", "env": [], "resources": {}}
    return job("ColossalAIJob", {"launcher": launcher, "worker": {**base, **worker}})


def generic(**spec: Any) -> dict[str, Any]:
    """A parameter server and two workers with rules."""
    base = {
        "successRules": [{"worker": [0, 1]}],
        "failureRules": [{"ps": [0]}],
        "replicaSpecs": [
            {"type": "ps", "template": template()},
            {"type": "worker", "replicas": 2, "template": template()},
        ],
    }
    return job("GenericJob", {**base, **spec})


BUILDERS = {
    "PyTorchTrainingJob": pytorch,
    "DeepSpeedJob": deepspeed,
    "ColossalAIJob": colossalai,
    "GenericJob": generic,
}


def changed(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one place set; ``path`` reads ``spec.replicaSpecs.0.type``, None removes."""
    out = copy.deepcopy(obj)
    here: Any = out
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
    if value is None:
        del here[last]
    elif isinstance(here, list) and last == len(here):
        here.append(value)
    else:
        here[last] = value
    return out


class _Quoting(yaml.SafeDumper):
    """Quotes every text: PyYAML leaves some plain that Kubernetes reads as numbers (``1E0``)."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def dump(obj: Any) -> str:
    """YAML that means the same to every reader."""
    return yaml.dump(obj, Dumper=_Quoting, allow_unicode=True, sort_keys=False)
