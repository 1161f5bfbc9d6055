"""Builders of jobs that are launched over ssh, and of their pods."""

from __future__ import annotations

import copy
import json
from typing import Any

from trainyard.kinds.colossalai.spec import ColossalAIJob
from trainyard.kinds.deepspeed.spec import DeepSpeedJob
from trainyard.kinds.kind_registry import describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.labels import LAUNCH
from trainyard.kinds.shared.workload import ReplicaKey, Workload

Object = dict[str, Any]
METADATA = {"name": "job", "namespace": "team", "uid": "4e71"}


def template(name: str = "worker", pod: Object | None = None, **container: Any) -> Object:
    """A pod template with one container."""
    given = {"name": name, "image": "image", **container}
    return {"spec": {"containers": [copy.deepcopy(given)], **(pod or {})}}


def deepspeed(
    *,
    config: Object | None = None,
    worker: Object | None = None,
    settings: Settings | None = None,
    **spec: Any,
) -> Workload:
    """The workload of a DeepSpeedJob with two workers and the script `train.py`."""
    body = {
        "kind": "DeepSpeedJob",
        "metadata": METADATA,
        "spec": {
            "config": {"run": {"python": ["train.py", "a b"]}, **(config or {})},
            "worker": {"replicas": 2, "template": template(), **(worker or {})},
            **spec,
        },
    }
    return describe(DeepSpeedJob.model_validate(body), settings or Settings())


def colossalai(
    *,
    torch: Object | None = None,
    specs: list[Object] | None = None,
    settings: Settings | None = None,
    **spec: Any,
) -> Workload:
    """The workload of a ColossalAIJob with two workers, no launcher given, and `train.py`."""
    workers = {"type": "worker", "replicas": 2, "template": template()}
    body = {
        "kind": "ColossalAIJob",
        "metadata": METADATA,
        "spec": {
            "torchConfig": {"script": ["train.py"], **(torch or {})},
            "replicaSpecs": specs if specs is not None else [workers],
            **spec,
        },
    }
    return describe(ColossalAIJob.model_validate(body), settings or Settings())


def pod(workload: Workload, kind: str = "worker", number: int = 0, *, resumed: bool = False) -> Any:
    """One built pod."""
    return workload.build_pod(ReplicaKey(kind, number), 1, pod_group="", resumed=resumed)


def launch_annotation(
    workload: Workload, kind: str = "worker", number: int = 0, *, resumed: bool = False
) -> Any:
    """What a pod's programs are told."""
    annotations = pod(workload, kind, number, resumed=resumed)["metadata"]["annotations"]
    return json.loads(annotations[LAUNCH])


def mounts(built: Object) -> dict[str, Object]:
    """The mounts of the first container, by path."""
    return {mount["mountPath"]: mount for mount in built["spec"]["containers"][0]["volumeMounts"]}
