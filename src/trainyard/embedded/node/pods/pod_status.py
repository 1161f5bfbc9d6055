"""A pod's status from the runs of its containers, and when they are restarted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from trainyard.embedded.node.containers.observer_folder import is_observed
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.kube.embedded_contract import STOPPED, stopped_message
from trainyard.schema import times
from trainyard.schema.dataclass import dataclass

Status = dict[str, Any]
ENDED = ("Succeeded", "Failed")
"""Phases that are terminal."""
_LOST = "the container was lost with the node's shim process; its exit code is unknown"
NODE_LOST = ("NodeLost", "the node's shim process ended, and all pods with it")
"""Reason and message of a pod that ended with the pod runtime, as by a reboot."""
_KILLED_CODE, _SIGKILL = 137, 9
# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
_HEALTHY_SECONDS = 600.0
"""After a run this long the back-off starts anew, as with the kubelet."""


@dataclass(slots=True)
class ContainerRun:
    """One container of a pod, through all its restarts. Times are Unix nanoseconds."""

    spec: Mapping[str, Any]
    is_init: bool = False
    is_ephemeral: bool = False
    """An ephemeral container: it has no influence on the pod's phase."""
    attempt: int = 0
    phase: str = "waiting"  # waiting, starting, running or terminated
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    signal: int = 0
    started_at: int = 0
    finished_at: int = 0
    last_termination: Status = field(default_factory=dict)
    has_started: bool = False
    is_ready: bool = False
    retry_at: float = 0.0
    backoff_seconds: float = 0.0
    pid: int = 0
    """Of its first process, once it runs."""
    gpus: tuple[int, ...] = ()
    cgroups: list[str] = field(default_factory=list)
    is_pids_limit_reported: bool = False
    """An event has said that it reached its limit of processes."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def is_sidecar(self) -> bool:
        """An init container that keeps running beside the others."""
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def is_main(self) -> bool:
        return not self.is_init and not self.is_ephemeral

    @property
    def has_succeeded(self) -> bool:
        return self.phase == "terminated" and self.exit_code == 0

    @property
    def is_active(self) -> bool:
        return self.phase in ("starting", "running")

    def state(self) -> Status:
        """A `ContainerState` of the API."""
        if self.phase == "running":
            return {"running": {"startedAt": times.from_nanoseconds(self.started_at)}}
        if self.phase == "terminated":
            return {"terminated": self.termination()}
        waiting = {"reason": self.reason or "ContainerCreating"}
        if self.message:
            waiting["message"] = self.message
        return {"waiting": waiting}

    def termination(self) -> Status:
        """A `ContainerStateTerminated` of the API."""
        default = "Completed" if self.exit_code == 0 else "Error"
        result: Status = {"exitCode": self.exit_code, "reason": self.reason or default}
        if self.signal:
            result["signal"] = self.signal
        if self.message:
            result["message"] = self.message
        if self.started_at:
            result["startedAt"] = times.from_nanoseconds(self.started_at)
        result["finishedAt"] = times.from_nanoseconds(self.finished_at)
        result["containerID"] = f"trainyard://{self.name}-{self.attempt}"
        return result

    def container_status(self) -> Status:
        """A `ContainerStatus` of the API."""
        image = self.spec.get("image", "")
        return {
            "name": self.name,
            "state": self.state(),
            "lastState": {"terminated": self.last_termination} if self.last_termination else {},
            "ready": self.is_ready or (self.is_init and not self.is_sidecar and self.has_succeeded),
            "restartCount": self.attempt,
            "image": image,
            "imageID": image,
            "containerID": f"trainyard://{self.name}-{self.attempt}",
            "started": self.has_started,
        }


def is_initialized(runs: Sequence[ContainerRun]) -> bool:
    """Whether main containers may start: sidecars have started, other init containers succeeded."""
    return all(
        run.has_started if run.is_sidecar else run.has_succeeded for run in runs if run.is_init
    )


# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
def pod_phase(runs: Sequence[ContainerRun], restart_policy: str) -> str:
    """The pod's phase; sidecars do not count."""
    mains = [run for run in runs if run.is_main]
    failed_init = [r for r in runs if r.is_init and not r.is_sidecar and r.phase == "terminated"]
    if restart_policy == "Never" and any(run.exit_code for run in failed_init):
        return "Failed"
    if all(run.phase == "terminated" for run in mains):
        if restart_policy == "Always":
            return "Running"
        if all(run.exit_code == 0 for run in mains):
            return "Succeeded"
        return "Failed" if restart_policy == "Never" else "Running"
    if any(run.phase in ("running", "terminated") or run.attempt for run in mains):
        return "Running"
    return "Pending"


def conditions(
    runs: Sequence[ContainerRun], phase: str, now: int, previous: Sequence[Status]
) -> list[Status]:
    """Ready, ContainersReady and Initialized, with those that others maintain kept.

    A pod of which a main container has run is initialized, whatever its sidecars end with.
    """
    # `GeneratePodInitializedCondition` in pkg/kubelet/status/generate.go.
    mains = [run for run in runs if run.is_main]
    has_begun = any(run.phase in ("running", "terminated") for run in mains)
    over = phase in ENDED
    ready = not over and bool(mains) and all(run.is_ready for run in mains)
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
    for kind, is_true, why in wanted:
        status = "True" if is_true else "False"
        condition = {
            "type": kind,
            "status": status,
            "lastTransitionTime": times.from_nanoseconds(now),
        }
        if not is_true:
            condition["reason"] = why
        if old.get(kind, {}).get("status") == status:
            condition["lastTransitionTime"] = old[kind]["lastTransitionTime"]
        result.append(condition)
    return result


def observed_pids(runs: Sequence[ContainerRun]) -> list[int]:
    """Process ids of the first processes of running containers with an observer."""
    return [run.pid for run in runs if run.phase == "running" and run.pid and is_observed(run.spec)]


def with_stopped_condition(current: list[Status], stopped: Sequence[int], now: int) -> list[Status]:
    """``current`` with the condition STOPPED, if processes are or were stopped.

    lastTransitionTime changes with the set of processes, so no process has been stopped for longer
    than it says.
    """
    old = next((each for each in current if each["type"] == STOPPED), None)
    text = stopped_message(stopped) if stopped else ""
    if text == (old or {}).get("message", ""):
        return current
    fields = {
        "type": STOPPED,
        "status": "True" if stopped else "False",
        "lastTransitionTime": times.from_nanoseconds(now),
    }
    fields |= {"reason": "Stopped", "message": text} if stopped else {}
    return [*(each for each in current if each is not old), fields]


class PodStatusFields(NamedTuple):
    """Fields of a pod's status that no container decides; ``start_time`` in Unix nanoseconds."""

    phase: str
    reason: str
    message: str
    address: str
    host_ip: str
    start_time: int
    stopped: Sequence[int] = ()
    """Processes that are stopped by a signal."""


def pod_status(
    runs: Sequence[ContainerRun], fields: PodStatusFields, *, old: Status, now: int
) -> Status:
    """The whole status; fields that the node does not own come from ``old``.

    A terminal phase stays as it is, whoever wrote it, with its reason.
    """
    if old.get("phase") in ENDED:  # decision 106
        why = {"reason": old.get("reason", ""), "message": old.get("message", "")}
        fields = fields._replace(phase=old["phase"], **why)
    current = conditions(runs, fields.phase, now, old.get("conditions", ()))
    result = {
        **{key: value for key, value in old.items() if key not in ("reason", "message")},
        "phase": fields.phase,
        "conditions": with_stopped_condition(
            current, () if fields.phase in ENDED else fields.stopped, now
        ),
        "hostIP": fields.host_ip,
        "hostIPs": [{"ip": fields.host_ip}],
        "startTime": old.get("startTime") or times.from_nanoseconds(fields.start_time),
        "containerStatuses": [run.container_status() for run in runs if run.is_main],
    }
    if fields.address:
        result |= {"podIP": fields.address, "podIPs": [{"ip": fields.address}]}
    if any(run.is_init for run in runs):
        result["initContainerStatuses"] = [run.container_status() for run in runs if run.is_init]
    if any(run.is_ephemeral for run in runs):
        result["ephemeralContainerStatuses"] = [
            run.container_status() for run in runs if run.is_ephemeral
        ]
    if fields.reason:
        result["reason"] = fields.reason
    if fields.message:
        result["message"] = fields.message
    return result


def restore_run(run: ContainerRun, seen: Mapping[str, Any]) -> None:
    """Set ``run`` to what its container status says, after the agent was restarted."""
    run.attempt = seen.get("restartCount", 0)
    run.last_termination = seen.get("lastState", {}).get("terminated", {})
    state = seen.get("state", {})
    if "running" in state:
        run.phase = "running"
        run.started_at = times.nanoseconds(state["running"]["startedAt"])
        run.is_ready, run.has_started = seen.get("ready", False), bool(seen.get("started"))
    elif ended := state.get("terminated"):
        run.phase = "terminated"
        run.exit_code, run.signal = ended["exitCode"], ended.get("signal", 0)
        run.reason, run.message = ended.get("reason", ""), ended.get("message", "")
        run.started_at = times.nanoseconds(ended.get("startedAt", ended["finishedAt"]))
        run.finished_at = times.nanoseconds(ended["finishedAt"])


def mark_lost(run: ContainerRun, now: int) -> None:
    """Terminate a run that vanished with the runtime, with Kubernetes' reason for that."""
    run.phase, run.reason, run.message = "terminated", "ContainerStatusUnknown", _LOST
    run.exit_code, run.signal, run.finished_at = _KILLED_CODE, _SIGKILL, now
    run.is_ready = run.has_started = False


def will_restart(run: ContainerRun, pod_policy: str) -> bool:
    """Whether an ended container runs again; ``pod_policy`` is the pod's restartPolicy."""
    if run.is_ephemeral or (run.is_init and not run.is_sidecar and run.exit_code == 0):
        return False
    policy = "Always" if run.is_sidecar else pod_policy
    return policy == "Always" or (policy == "OnFailure" and run.exit_code != 0)


def schedule_restart(run: ContainerRun, settings: NodeSettings, now: float) -> None:
    """Set when it runs again (monotonic seconds); the back-off doubles each time."""
    lived = (run.finished_at - run.started_at) / 1e9
    is_first = lived > _HEALTHY_SECONDS or not run.backoff_seconds
    delay = settings.restart_delay if is_first else run.backoff_seconds * 2
    run.backoff_seconds = min(delay, settings.restart_delay_limit)
    run.last_termination = run.termination()
    run.retry_at = now + run.backoff_seconds
    run.attempt += 1
    run.phase, run.reason = "waiting", "CrashLoopBackOff"
    run.message = f"back-off {run.backoff_seconds:.0f}s restarting failed container={run.name}"


def mark_refused(run: ContainerRun, message: str, now: int) -> None:
    """Terminate a run that can never start, as if it had ended at once."""
    run.phase, run.reason, run.message = "terminated", "ContainerCannotRun", message
    run.exit_code, run.signal, run.started_at, run.finished_at = 128, 0, now, now
