"""`status.tensorboard`: whether the job's TensorBoard can be used."""

from __future__ import annotations

from typing import Any

from trainyard.lifecycle.observed import Observed
from trainyard.workloads.resources import TENSOR_BOARDS
from trainyard.workloads.workload import Workload


def dependent_status(workload: Workload, observed: Observed) -> dict[str, Any] | None:
    """None for a job without a TensorBoard."""
    if not workload.tensorboard:
        return None
    found = next(
        (
            owned
            for owned in observed.owned
            if owned.resource == TENSOR_BOARDS and owned.name == workload.tensorboard
        ),
        None,
    )
    name = workload.tensorboard
    status: dict[str, Any] = {
        "action": "NOP" if found else "Create",
        "dependent": {
            "apiVersion": TENSOR_BOARDS.api_version,
            "kind": "TensorBoard",
            "name": name,
            "namespace": workload.namespace,
            "uid": found.uid if found else "",
        },
        "name": "tensorboard",
    }
    if found is not None and found.status.get("phase") == "Running":
        return status | {
            "note": f"TensorBoard [{name}] is ready",
            "ready": True,
            "reason": "DependentReady",
            "type": "Normal",
        }
    failed = found is not None and found.status.get("phase") == "Failed"
    return status | {
        "note": f"TensorBoard [{name}] is not ready",
        "ready": False,
        "reason": "DependentNotReady",
        "type": "Warning" if failed else "Normal",
    }
