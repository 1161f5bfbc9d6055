"""`status.tensorboard`: whether the job's TensorBoard can be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.kinds.shared.reasons import BoardCondition, BoardPhase, BoardReason
from trainyard.kinds.shared.workload import Workload
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.lifecycle.observed import Observed, Owned

_TROUBLES = (BoardReason.NOT_SERVED, BoardReason.FETCH_FAILED)


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
    url = found.status.get("url") if found else None
    if found is not None and found.status.get("phase") == "Running":
        return status | _told(f"TensorBoard [{name}] is ready", found, ready=True, url=url)
    why = _condition(found, BoardCondition.READY).get("message") or ""
    note = f"TensorBoard [{name}] is not ready" + (f": {why}" if why else "")
    return status | _told(note, found, ready=False, url=url)


def _told(note: str, found: Owned | None, *, ready: bool, url: str | None) -> dict[str, Any]:
    logs = _condition(found, BoardCondition.LOGS_SERVED)
    if logs.get("status") == "False":
        note += f"; {logs.get('message', '')}"
    failed = found is not None and found.status.get("phase") == BoardPhase.FAILED
    told = {
        "note": note,
        "ready": ready,
        "reason": "DependentReady" if ready else "DependentNotReady",
        "type": "Warning" if failed or logs.get("reason") in _TROUBLES else "Normal",
    }
    return told | ({"url": url} if url else {})


def _condition(found: Owned | None, kind: BoardCondition) -> Mapping[str, Any]:
    conditions = (found.status.get("conditions") or ()) if found else ()
    return next((c for c in conditions if c.get("type") == kind), {})
