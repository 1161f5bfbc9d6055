"""Pods: a node is chosen once, and a pod that a node runs is given time to stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.kube.resources import PODS
from trainyard.local.failures import Cause, bad_request
from trainyard.local.resources.columns import AGE, NAME, Column, at
from trainyard.local.resources.resource import Object, Present, Served, Subresource
from trainyard.schema.problems import Problem

_GRACE_SECONDS = 30
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_PROBE_DEFAULTS = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_MUTABLE = (
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "containers",
    "initContainers",
    "schedulingGates",
)


class _Pods(Served):
    def rules(self, obj: Object) -> Iterable[Problem]:
        from trainyard.local.resources import pod_rules

        return pod_rules.problems(obj)

    def unusable(self, obj: Object) -> Iterable[Problem]:
        """An older one may run although it would be refused today."""
        return [each for each in self.rules(obj) if each.path == ("spec", "containers")]

    def is_at_rest(self, obj: Object) -> bool:
        return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def prepare_create(self, obj: Object, present: Present) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(obj)}
        spec = obj.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", _GRACE_SECONDS)
        spec.setdefault("dnsPolicy", "ClusterFirst")
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("enableServiceLinks", True)
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            container.setdefault("terminationMessagePath", "/dev/termination-log")
            container.setdefault("terminationMessagePolicy", "File")
            container.setdefault("imagePullPolicy", "IfNotPresent")
            container.setdefault("resources", {})
            for port in container.get("ports") or ():
                port.setdefault("protocol", "TCP")
            for name in _PROBES:
                _complete_probe(container.get(name) or {})

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        """Of a pod's spec only images, deadline and grace may change; a node is chosen once."""
        before, after = old.get("spec") or {}, new.get("spec") or {}
        frozen = {
            key
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key) and key not in _MUTABLE
        }
        if not before.get("nodeName"):
            frozen.discard("nodeName")
        if frozen:
            text = "Forbidden: pod updates may not change this field"
            raise self.refused(new, *(Cause(f"spec.{key}", text) for key in sorted(frozen)))

    def grace_seconds(self, obj: Object, asked: int | None) -> int:
        """0 for a pod that no node runs (any more)."""
        spec = obj.get("spec") or {}
        phase = (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
            return 0
        if asked is not None:
            return max(asked, 0)
        return int(spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS))


def chosen_container(pod: Object, asked: str) -> str:
    """The container asked for, or the pod's only one; raises BadRequest as kube-apiserver does."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [
        each["name"] for group in ("containers", "initContainers") for each in spec.get(group) or ()
    ]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    ordinary = [each["name"] for each in pod["spec"]["containers"]]
    if len(ordinary) != 1:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: {ordinary}"
        )
    return str(ordinary[0])


def _complete_probe(probe: Object) -> None:
    """A number that is absent or 0 has its default, as `SetDefaults_Probe` of Kubernetes has it."""
    for field, default in _PROBE_DEFAULTS.items():
        probe[field] = probe.get(field) or default


def _qos_class(pod: Object) -> str:
    containers = (pod.get("spec") or {}).get("containers") or []
    asked = [container.get("resources") or {} for container in containers]
    limits = [resources.get("limits") or {} for resources in asked]
    requests = [resources.get("requests") or {} for resources in asked]
    if not any(limits) and not any(requests):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= limit.keys()
        and all(request.get(name, limit[name]) == limit[name] for name in ("cpu", "memory"))
        for limit, request in zip(limits, requests, strict=True)
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _containers(pod: Object) -> Sequence[Object]:
    return pod.get("status", {}).get("containerStatuses") or ()


def _ready(pod: Object) -> str:
    total = len(pod.get("spec", {}).get("containers") or ())
    return f"{sum(bool(status.get('ready')) for status in _containers(pod))}/{total}"


def _status(pod: Object) -> str:
    """The word of `printPod`: the most telling container reason, else the phase."""
    status = pod.get("status", {})
    word = status.get("reason") or status.get("phase") or "Unknown"
    initial = _initial_word(pod)
    if initial is not None:
        word = initial
    if initial is None or _is_initialized(pod):
        for container in reversed(_containers(pod)):
            state = container.get("state") or {}
            if reason := (state.get("waiting") or {}).get("reason"):
                word = reason
            elif "terminated" in state:
                word = _terminated_word(state["terminated"])
        if word == "Completed" and any(each.get("ready") for each in _containers(pod)):
            word = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)


def _is_initialized(pod: Object) -> bool:
    """Also where a sidecar, which is an init container, has ended with an error since."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "Initialized" and c.get("status") == "True" for c in conditions)


def _initial_word(pod: Object) -> str | None:
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    for number, container in enumerate(statuses):
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if (terminated and terminated.get("exitCode") == 0) or container.get("started"):
            continue
        if terminated:
            return f"Init:{_terminated_word(terminated)}"
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{number}/{len(statuses)}"
    return None


def _terminated_word(terminated: Object) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    if signal := terminated.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts(pod: Object) -> str:
    return str(sum(int(status.get("restartCount", 0)) for status in _containers(pod)))


SERVED = _Pods(
    PODS,
    order=30,
    short_names=("po",),
    categories=("all",),
    definition="Pod",
    status=True,
    generation=True,
    subresources={
        "log": Subresource("Pod", ("get",)),
        "exec": Subresource("PodExecOptions", ("create", "get")),
        "portforward": Subresource("PodPortForwardOptions", ("create", "get")),
        "binding": Subresource("Binding", ("create",)),
        "eviction": Subresource("Eviction", ("create",)),
    },
    printed=(
        NAME,
        Column("Ready", _ready),
        Column("Status", _status),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", at("status.podIP"), priority=1),
        Column("Node", at("spec.nodeName"), priority=1),
        Column("Nominated Node", at("status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", lambda _: "<none>", priority=1),
    ),
    selectable=frozenset(
        [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    ),
    returns_deleted=True,
)
