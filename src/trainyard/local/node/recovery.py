"""A container's past, read back from the pod's status after the agent was restarted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainyard.local.node.status import Run
from trainyard.schema.times import nanoseconds

_LOST = "the container was lost with the node's shim process; its exit code is unknown"
_KILLED_CODE, _SIGKILL = 137, 9


def restore(run: Run, seen: Mapping[str, Any]) -> None:
    """Set ``run`` to what its container status says."""
    run.attempt = seen.get("restartCount", 0)
    run.previous = seen.get("lastState", {}).get("terminated", {})
    state = seen.get("state", {})
    if "running" in state:
        run.phase = "running"
        run.started_at = nanoseconds(state["running"]["startedAt"])
        run.ready, run.started = seen.get("ready", False), bool(seen.get("started"))
    elif ended := state.get("terminated"):
        run.phase = "terminated"
        run.code, run.signal = ended["exitCode"], ended.get("signal", 0)
        run.reason, run.message = ended.get("reason", ""), ended.get("message", "")
        run.started_at = nanoseconds(ended.get("startedAt", ended["finishedAt"]))
        run.finished_at = nanoseconds(ended["finishedAt"])


def lose(run: Run) -> None:
    """It ran when last seen, and nothing is known of its end: as Kubernetes words it."""
    run.phase, run.reason, run.message = "terminated", "ContainerStatusUnknown", _LOST
    run.code, run.signal, run.finished_at = _KILLED_CODE, _SIGKILL, time.time_ns()
    run.ready = run.started = False
