"""`plan()` for jobs of a thousand and ten thousand replicas: processor time of one pass.

`measure()` gives rows (what, value, unit, target); run as a program it prints them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Container, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from trainyard.kinds.kind_registry import describe
from trainyard.kinds.pytorch.spec import PyTorchTrainingJob
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import ReplicaKey, Workload
from trainyard.kube.resources import SERVICES
from trainyard.lifecycle import Observed, Owned, Pod, plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = Settings()
ROUNDS = 15


class Row(NamedTuple):
    """One measurement; `target` is an upper limit, None where there is none."""

    what: str
    value: float
    unit: str
    target: float | None


def measure() -> list[Row]:
    """Nothing to do, failures, and everything to create, at both sizes."""
    return [*_rows(1_000, 5.0), *_rows(10_000, 50.0)]


def _rows(size: int, target: float) -> Iterator[Row]:
    workload = _workload(size)
    service = Owned(SERVICES, "default", workload.base, "s", "1", workload.uid)
    healthy = Observed(pods=_pods(workload), owned=(service,))
    failed = Observed(pods=_pods(workload, failed=[size // 2]), owned=(service,))
    status = plan(workload, None, healthy, NOW, SETTINGS).status
    later = NOW + timedelta(seconds=60)
    broken = Observed(pods=_pods(workload, failed=range(size)), owned=(service,))
    for what, before, observed, limit in (
        ("nothing to do", status, healthy, target),
        ("one replica failed", status, failed, target),
        ("all replicas failed", status, broken, None),
        ("all pods to create", None, Observed(owned=(service,)), target),
    ):
        seconds = _best(partial(plan, workload, before, observed, later, SETTINGS))
        yield Row(f"plan(), {size:,} replicas, {what}", seconds * 1e3, "ms", limit)


def _workload(replicas: int) -> Workload:
    container = {"name": "main", "image": "i", "command": ["true"]}
    job = {
        "kind": "PyTorchTrainingJob",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid"},
        "spec": {
            "replicaSpecs": [
                {
                    "type": "worker",
                    "replicas": replicas,
                    "restartPolicy": "OnFailure",
                    "template": {"spec": {"containers": [container]}},
                }
            ]
        },
    }
    return describe(PyTorchTrainingJob.model_validate(job), SETTINGS)


def _pods(workload: Workload, failed: Container[int] = ()) -> tuple[Pod, ...]:
    return tuple(_pod(workload, key, key.ordinal in failed) for key in workload.keys)


def _pod(workload: Workload, key: ReplicaKey, failed: bool) -> Pod:
    obj: dict[str, Any] = workload.build_pod(key, 1, pod_group="", resumed=False)
    state = {"terminated": {"exitCode": 1}} if failed else {"running": {}}
    obj["metadata"]["uid"] = f"uid-{key.ordinal}"
    obj["spec"]["nodeName"] = "node"
    obj["status"] = {
        "phase": "Failed" if failed else "Running",
        "containerStatuses": [{"name": "main", "state": state}],
    }
    return Pod.decode(obj)


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of several rounds; the collector would measure the fixtures."""
    gc.collect()
    gc.disable()
    try:
        return min(_once(run) for _ in range(ROUNDS))
    finally:
        gc.enable()


def _once(run: Callable[[], object]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


if __name__ == "__main__":
    for row in measure():
        target = f"   (target {row.target:g})" if row.target is not None else ""
        print(f"{row.what:50} {row.value:8.2f} {row.unit}{target}")
