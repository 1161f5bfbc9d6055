"""A pod's status from what its containers have been through, and when they run again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from trainyard.embedded.node.containers.observer_folder import is_observed
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.kinds.shared import pod_contract
from trainyard.schema import times
from trainyard.schema.dataclass import dataclass

Status = dict[str, Any]
ENDED = ("Succeeded", "Failed")
"""Phases that are terminal."""
_LOST = "the container was lost with the node's shim process; its exit code is unknown"
_KILLED_CODE, _SIGKILL = 137, 9
# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
_HEALTHY_SECONDS = 600.0
"""Who ran for so long starts with the shortest delay again, as with the kubelet."""


@dataclass(slots=True)
class Run:
    """One container of a pod, through all its restarts. Times are Unix nanoseconds."""

    spec: Mapping[str, Any]
    init: bool = False
    ephemeral: bool = False
    """Added to a pod that runs: it has no say in what becomes of that."""
    attempt: int = 0
    phase: str = "waiting"  # waiting, starting, running or terminated
    reason: str = ""
    message: str = ""
    code: int = 0
    signal: int = 0
    started_at: int = 0
    finished_at: int = 0
    previous: Status = field(default_factory=dict)
    started: bool = False
    ready: bool = False
    retry_at: float = 0.0
    delay: float = 0.0
    pid: int = 0
    """Of its first process, once it runs."""
    gpus: tuple[int, ...] = ()
    cgroups: list[str] = field(default_factory=list)
    is_told_full: bool = False
    """That it had as many processes as it may."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def sidecar(self) -> bool:
        """An init container that keeps running beside the others."""
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def main(self) -> bool:
        return not self.init and not self.ephemeral

    @property
    def succeeded(self) -> bool:
        return self.phase == "terminated" and self.code == 0

    @property
    def active(self) -> bool:
        return self.phase in ("starting", "running")

    def state(self) -> Status:
        if self.phase == "running":
            return {"running": {"startedAt": times.from_nanoseconds(self.started_at)}}
        if self.phase == "terminated":
            return {"terminated": self.termination()}
        waiting = {"reason": self.reason or "ContainerCreating"}
        if self.message:
            waiting["message"] = self.message
        return {"waiting": waiting}

    def termination(self) -> Status:
        default = "Completed" if self.code == 0 else "Error"
        result: Status = {"exitCode": self.code, "reason": self.reason or default}
        if self.signal:
            result["signal"] = self.signal
        if self.message:
            result["message"] = self.message
        if self.started_at:
            result["startedAt"] = times.from_nanoseconds(self.started_at)
        result["finishedAt"] = times.from_nanoseconds(self.finished_at)
        result["containerID"] = f"trainyard://{self.name}-{self.attempt}"
        return result

    def describe(self) -> Status:
        image = self.spec.get("image", "")
        return {
            "name": self.name,
            "state": self.state(),
            "lastState": {"terminated": self.previous} if self.previous else {},
            "ready": self.ready or (self.init and not self.sidecar and self.succeeded),
            "restartCount": self.attempt,
            "image": image,
            "imageID": image,
            "containerID": f"trainyard://{self.name}-{self.attempt}",
            "started": self.started,
        }


def is_initialized(runs: Sequence[Run]) -> bool:
    return all(run.started if run.sidecar else run.succeeded for run in runs if run.init)


# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
def phase_of(runs: Sequence[Run], restart_policy: str) -> str:
    """The pod's phase; sidecars do not count."""
    mains = [run for run in runs if run.main]
    failed_init = [r for r in runs if r.init and not r.sidecar and r.phase == "terminated"]
    if restart_policy == "Never" and any(run.code for run in failed_init):
        return "Failed"
    if all(run.phase == "terminated" for run in mains):
        if restart_policy == "Always":
            return "Running"
        if all(run.code == 0 for run in mains):
            return "Succeeded"
        return "Failed" if restart_policy == "Never" else "Running"
    if any(run.phase in ("running", "terminated") or run.attempt for run in mains):
        return "Running"
    return "Pending"


def conditions(
    runs: Sequence[Run], phase: str, now: int, previous: Sequence[Status]
) -> list[Status]:
    """Ready, ContainersReady and Initialized, with those that others maintain kept.

    A pod of which a main container has run is initialized, whatever its sidecars end with.
    """
    # `GeneratePodInitializedCondition` in pkg/kubelet/status/generate.go.
    mains = [run for run in runs if run.main]
    has_begun = any(run.phase in ("running", "terminated") for run in mains)
    over = phase in ENDED
    ready = not over and bool(mains) and all(run.ready for run in mains)
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    wanted = [
        (
            "Initialized",
            is_initialized(runs) or has_begun or phase == "Succeeded",
            "ContainersNotInitialized",
        ),
        ("ContainersReady", ready, reason),
        ("Ready", ready, reason),
    ]
    old = {condition["type"]: condition for condition in previous}
    result = [c for c in previous if c["type"] not in {kind for kind, _, _ in wanted}]
    for kind, holds, why in wanted:
        status = "True" if holds else "False"
        condition = {
            "type": kind,
            "status": status,
            "lastTransitionTime": times.from_nanoseconds(now),
        }
        if not holds:
            condition["reason"] = why
        if old.get(kind, {}).get("status") == status:
            condition["lastTransitionTime"] = old[kind]["lastTransitionTime"]
        result.append(condition)
    return result


def observed(runs: Sequence[Run]) -> list[int]:
    """The first processes of the containers that run and whose ranks are observed."""
    return [run.pid for run in runs if run.phase == "running" and run.pid and is_observed(run.spec)]


def stopping(held: list[Status], stopped: Sequence[int], now: int) -> list[Status]:
    """The conditions with that of stopped processes, where there are or were some.

    Its time is that of the last change of who is stopped: none has been for longer than it says.
    """
    old = next((each for each in held if each["type"] == pod_contract.STOPPED), None)
    text = pod_contract.stopped_text(stopped) if stopped else ""
    if text == (old or {}).get("message", ""):
        return held
    told = {
        "type": pod_contract.STOPPED,
        "status": "True" if stopped else "False",
        "lastTransitionTime": times.from_nanoseconds(now),
    }
    told |= {"reason": "Stopped", "message": text} if stopped else {}
    return [*(each for each in held if each is not old), told]


class Told(NamedTuple):
    """What is told of a pod beside its containers; ``start_time`` in Unix nanoseconds."""

    phase: str
    reason: str
    message: str
    address: str
    host_ip: str
    start_time: int
    stopped: Sequence[int] = ()
    """Processes that are stopped by a signal."""


def pod_status(runs: Sequence[Run], told: Told, *, old: Status, now: int) -> Status:
    """The whole status; fields that the node does not own come from ``old``.

    A terminal phase stays as it is, whoever wrote it, with its reason.
    """
    if old.get("phase") in ENDED:  # decision 106
        why = {"reason": old.get("reason", ""), "message": old.get("message", "")}
        told = told._replace(phase=old["phase"], **why)
    held = conditions(runs, told.phase, now, old.get("conditions", ()))
    result = {
        **{key: value for key, value in old.items() if key not in ("reason", "message")},
        "phase": told.phase,
        "conditions": stopping(held, () if told.phase in ENDED else told.stopped, now),
        "hostIP": told.host_ip,
        "hostIPs": [{"ip": told.host_ip}],
        "startTime": old.get("startTime") or times.from_nanoseconds(told.start_time),
        "containerStatuses": [run.describe() for run in runs if run.main],
    }
    if told.address:
        result |= {"podIP": told.address, "podIPs": [{"ip": told.address}]}
    if any(run.init for run in runs):
        result["initContainerStatuses"] = [run.describe() for run in runs if run.init]
    if any(run.ephemeral for run in runs):
        result["ephemeralContainerStatuses"] = [run.describe() for run in runs if run.ephemeral]
    if told.reason:
        result["reason"] = told.reason
    if told.message:
        result["message"] = told.message
    return result


def restore(run: Run, seen: Mapping[str, Any]) -> None:
    """Set ``run`` to what its container status says, after the agent was restarted."""
    run.attempt = seen.get("restartCount", 0)
    run.previous = seen.get("lastState", {}).get("terminated", {})
    state = seen.get("state", {})
    if "running" in state:
        run.phase = "running"
        run.started_at = times.nanoseconds(state["running"]["startedAt"])
        run.ready, run.started = seen.get("ready", False), bool(seen.get("started"))
    elif ended := state.get("terminated"):
        run.phase = "terminated"
        run.code, run.signal = ended["exitCode"], ended.get("signal", 0)
        run.reason, run.message = ended.get("reason", ""), ended.get("message", "")
        run.started_at = times.nanoseconds(ended.get("startedAt", ended["finishedAt"]))
        run.finished_at = times.nanoseconds(ended["finishedAt"])


def lose(run: Run, now: int) -> None:
    """It ran when last seen, and nothing is known of its end: as Kubernetes words it."""
    run.phase, run.reason, run.message = "terminated", "ContainerStatusUnknown", _LOST
    run.code, run.signal, run.finished_at = _KILLED_CODE, _SIGKILL, now
    run.ready = run.started = False


def is_restarted(run: Run, pod_policy: str) -> bool:
    """A container that has ended; ``pod_policy`` is the pod's restartPolicy."""
    if run.ephemeral or (run.init and not run.sidecar and run.code == 0):
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
