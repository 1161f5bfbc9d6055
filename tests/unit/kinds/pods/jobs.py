"""Jobs to describe, and a look at the objects that come of them."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.kind_registry import KINDS, describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods.pod_assembly import default_env
from trainyard.kinds.shared.workload import ReplicaKey, Workload

UID = "9dcea839-3a99-4b6f-b594-620d79f8377d"


def job(kind: str, name: str = "torch-mnist-trainingjob", **spec: Any) -> dict[str, Any]:
    """A stored job; name and UID give the hash 7a8f5."""
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ml", "uid": UID, "generation": 1},
        "spec": spec,
    }


def replicas(
    type_: str = "worker",
    count: int = 1,
    containers: list[dict[str, Any]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One replica spec."""
    containers = containers or [{"name": "pytorch", "image": "i", "args": ["train.py", "--lr=1"]}]
    return {
        "type": type_,
        "replicas": count,
        "template": {"spec": {"containers": containers}},
        **more,
    }


def workload(obj: dict[str, Any], settings: Settings | None = None) -> Workload:
    model = KINDS[obj["kind"]].model.model_validate(obj)
    return describe(model, settings or Settings())  # type: ignore[arg-type]


def pod(
    described: Workload, type_: str = "worker", ordinal: int = 0, *, resumed: bool = False
) -> dict[str, Any]:
    return described.build_pod(ReplicaKey(type_, ordinal), 1, pod_group="group", resumed=resumed)


def container(built: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = built["spec"]["containers"][index]
    return found


def env(built: dict[str, Any], index: int = 0) -> dict[str, str]:
    """Variables of one container, in order, without those that every container has."""
    variables = container(built, index).get("env", ())
    return {e["name"]: e.get("value", "") for e in variables if e["name"] not in default_env(1)}
