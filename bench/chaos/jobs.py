"""The jobs that are put under faults, in the ways of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TRAIN = Path(__file__).with_name("train.py")
RANKS = 4
RETRIES = 1000
PACE = 2.0
"""Seconds of an epoch."""


class Trained(NamedTuple):
    """A job that trains."""

    name: str
    what: str
    job: dict[str, Any]


def jobs(epochs: int) -> Iterator[Trained]:
    """A job of each kind, and each way to restart."""
    words = [str(TRAIN), "--epochs", str(epochs), "--pace", str(PACE), "--folder", "/out"]
    retry = {"backoffLimit": RETRIES}
    worker = {"type": "worker", "replicas": RANKS, "restartPolicy": "OnFailure"}
    launched = {**worker, "template": _pod("main", args=words)}
    kind, torchrun = "PyTorchTrainingJob", {"enabled": True, "procPerNode": "1"}
    job = _job(kind, replicaSpecs=[launched], torchrunConfig=torchrun, runPolicy=retry)
    yield Trained("job-torchrun", f"{kind} with torchrun", job)
    plain = {**worker, "template": _pod("main", command=["python", *words])}
    in_place = {**retry, "restartMode": "InPlace"}
    for name, what, policy in (
        ("job-plain", kind, retry),
        ("inplace", "the same with `restartMode: InPlace`", in_place),
        (
            "inplace-preload",
            "the same with `preload: [torch, sklearn.datasets]` too",
            {**in_place, "preload": ["torch", "sklearn.datasets"]},
        ),
    ):
        yield Trained(name, what, _job(kind, replicaSpecs=[plain], runPolicy=policy))
    two = {"replicas": 2, "restartPolicy": "OnFailure", "template": _pod("worker")}
    config: dict[str, Any] = {"slotsPerWorker": 2, "run": {"python": words}}
    job = _job("DeepSpeedJob", config=config, worker=two, runPolicy=retry)
    yield Trained("deepspeed", "DeepSpeedJob", job)
    limited = {"policy": "OnFailure", "limit": RETRIES}
    specs = [
        {"type": "launcher", "restartPolicy": limited, "template": {}},
        {"type": "worker", "replicas": 2, "template": _pod("worker")},
    ]
    config = {"procPerWorker": 2, "script": words}
    job = _job("ColossalAIJob", torchConfig=config, replicaSpecs=specs)
    yield Trained("colossalai", "ColossalAIJob", job)
    alone = _pod("main", command=["python", *words, "--alone"])
    each = {**worker, "restartPolicy": limited, "template": alone}
    job = _job("GenericJob", replicaSpecs=[each])
    yield Trained("generic", "GenericJob, each replica alone", job)


def _job(kind: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": kind}
    return {**head, "metadata": {"name": "digits"}, "spec": spec}


def _pod(name: str, **container: Any) -> dict[str, Any]:
    variables = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    mounts = [{"name": "out", "mountPath": "/out"}]
    main = {"name": name, "image": "torch", "env": variables, "volumeMounts": mounts, **container}
    claim = {"name": "out", "persistentVolumeClaim": {"claimName": "out"}}
    return {"spec": {"containers": [main], "volumes": [claim]}}
