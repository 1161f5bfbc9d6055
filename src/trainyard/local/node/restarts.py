"""Whether, when and how a container that has ended runs again. Pure."""

from __future__ import annotations

from trainyard.local.node.settings import NodeSettings
from trainyard.local.node.status import Run

# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
_HEALTHY_SECONDS = 600.0
"""Who ran for so long starts with the shortest delay again, as with the kubelet."""


def is_restarted(run: Run, pod_policy: str) -> bool:
    """A container that has ended; ``pod_policy`` is the pod's restartPolicy."""
    if run.init and not run.sidecar and run.code == 0:
        return False
    policy = "Always" if run.sidecar else pod_policy
    return policy == "Always" or (policy == "OnFailure" and run.code != 0)


def schedule(run: Run, settings: NodeSettings, now: float) -> None:
    """Note when it runs again (monotonic seconds), with delays that double each time."""
    lived = (run.finished_at - run.started_at) / 1e9
    is_first = lived > _HEALTHY_SECONDS or not run.delay
    delay = settings.restart_delay if is_first else run.delay * 2
    run.delay = min(delay, settings.restart_delay_limit)
    run.previous = run.termination()
    run.retry_at = now + run.delay
    run.attempt += 1
    run.phase, run.reason = "waiting", "CrashLoopBackOff"
    run.message = f"back-off {run.delay:.0f}s restarting failed container={run.name}"


def refuse(run: Run, message: str, now: int) -> None:
    """It can never start: as if it had ended at once."""
    run.phase, run.reason, run.message = "terminated", "ContainerCannotRun", message
    run.code, run.signal, run.started_at, run.finished_at = 128, 0, now, now
