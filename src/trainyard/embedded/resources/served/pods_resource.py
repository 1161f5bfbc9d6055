"""Pods: a node is chosen once, and a pod that a node runs is given time to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainyard.embedded.api_errors import StatusCause, bad_request, forbidden
from trainyard.embedded.resources.pod import ephemeral_containers, pod_admission, pod_defaults
from trainyard.embedded.resources.pod.pod_protobuf import POD_MESSAGES
from trainyard.embedded.resources.pod.pod_spec_cache import ValidSpecs, spec_key
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column, at
from trainyard.embedded.resources.resource import (
    PROXY_VERBS,
    Object,
    Present,
    Served,
    Subresource,
    Validation,
)
from trainyard.kube.resources import PODS
from trainyard.schema.problems import Problem
from trainyard.schema.rules.pod_spec_rules import grace_seconds, pod, pod_annotations, pod_status

_GATED = "SchedulingGated"


_VALID_SPECS = ValidSpecs()
_NEW_POD_FIELDS = {"apiVersion", "kind", "metadata", "spec"}


class _Pods(Served):
    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        return pod(obj, old)

    def validate(self, obj: Object, old: Object | None) -> Validation:
        if old is not None or obj.keys() != _NEW_POD_FIELDS:
            return self._judge_all(obj, old)
        key = spec_key(obj)
        if key in _VALID_SPECS:
            return self._judge_all_but_spec(obj)
        verdict = self._judge_all(obj, None)
        if not any(verdict[1:]) and spec_key(verdict.obj) == key:  # decoding left nothing out
            _VALID_SPECS.add(key)
        return verdict

    def _judge_all(self, obj: Object, old: Object | None) -> Validation:
        verdict = super().validate(obj, old)
        return verdict._replace(
            warnings=[*verdict.warnings, *ephemeral_containers.warnings(obj, old)]
        )

    def _judge_all_but_spec(self, obj: Object) -> Validation:
        """What is wrong with a new pod whose spec is known to be valid."""
        spec = obj.pop("spec")
        found = self.decode(obj)
        found.obj["spec"] = spec
        errors = [*found.errors]
        if not found.malformed:
            errors += pod_annotations(found.obj)
        return Validation(found.obj, found.malformed, errors, found.unknown)

    def unusable(self, obj: Object) -> Iterable[Problem]:
        """An older one may run although it would be refused today."""
        return [each for each in self.rules(obj, None) if each.path == ("spec", "containers")]

    def is_rarely_read(self, obj: Object) -> bool:
        return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def status_rules(self, obj: Object) -> Iterable[Problem]:
        return pod_status(obj.get("status") or {})

    def prepare_create(self, obj: Object, present: Present) -> None:
        if (obj.get("spec") or {}).get("overhead"):
            text = "pod rejected: overhead is set without a RuntimeClass that has it"
            raise forbidden(self.name, obj["metadata"]["name"], text)
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(obj)}
        pod_defaults.complete(obj["spec"])
        if obj["spec"].get("schedulingGates"):
            text = "Scheduling is blocked due to non-empty scheduling gates"
            condition = {"type": "PodScheduled", "status": "False", "reason": _GATED}
            obj["status"]["conditions"] = [{**condition, "message": text}]

    def allocate(self, obj: Object, present: Present) -> None:
        pod_admission.complete_new(obj["spec"])

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        """Only images, deadline and tolerations may change; a node is chosen once."""
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if after.get("containers"):
            pod_defaults.complete(after)
            pod_admission.complete_replaced(after, before)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        if not before.get("nodeName"):
            changed.discard("nodeName")
        causes = [cause for key in sorted(changed) if (cause := _refusal(key, before, after))]
        if causes:
            raise self.refused(new, *causes)

    def prepare_part(self, subresource: str, new: Object, old: Object) -> None:
        if subresource == ephemeral_containers.SUBRESOURCE and (
            causes := ephemeral_containers.prepare(new, old)
        ):
            raise self.refused(new, *causes)

    def grace_seconds(self, obj: Object, asked: int | None) -> int:
        """0 for a pod that no node runs (any more)."""
        spec = obj.get("spec") or {}
        phase = (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
            return 0
        if asked is not None:
            return asked if asked >= 0 else 1
        return grace_seconds(spec)


def _refusal(key: str, before: Object, after: Object) -> StatusCause | None:
    """Why a field of a pod's spec may not change as it does; None if it may."""
    was, wanted = before.get(key), after.get(key)
    may_change = _CHANGES.get(key)
    if may_change is not None and may_change(was, wanted):
        return None
    text = _WHY.get(key, "pod updates may not change this field")
    return StatusCause(f"spec.{key}", f"Forbidden: {text}", "FieldValueForbidden")


def _only_images(was: Any, wanted: Any) -> bool:
    new, old = ([_without_image(each) for each in group or ()] for group in (wanted, was))
    return new == old


def _only_less(was: Any, wanted: Any) -> bool:
    return wanted is not None and (was is None or wanted <= was)


def _only_more(was: Any, wanted: Any) -> bool:
    return all(any(_tolerates_as(old, new) for new in wanted or ()) for old in was or ())


def _only_fewer(was: Any, wanted: Any) -> bool:
    return all(gate in (was or ()) for gate in wanted or ())


def _only_mended(was: Any, wanted: Any) -> bool:
    return was is not None and was < 0 and bool(wanted == 1)


_CHANGES: Mapping[str, Callable[[Any, Any], bool]] = {
    "containers": _only_images,
    "initContainers": _only_images,
    "activeDeadlineSeconds": _only_less,
    "tolerations": _only_more,
    "terminationGracePeriodSeconds": _only_mended,
    "schedulingGates": _only_fewer,
}
_WHY = {
    "containers": "pod updates may change nothing of a container but its image",
    "initContainers": "pod updates may change nothing of a container but its image",
    "activeDeadlineSeconds": "it may only become less",
    "tolerations": "existing tolerations may not change, except their tolerationSeconds",
    "schedulingGates": "gates may only be taken away",
    "ephemeralContainers": "they are added by the subresource ephemeralcontainers only",
}


def _without_image(container: Object) -> Object:
    return {**container, "image": "", "imagePullPolicy": ""}


def _tolerates_as(old: Object, new: Object) -> bool:
    seconds = {"tolerationSeconds": None}
    return {**old, **seconds} == {**new, **seconds}


def chosen_container(pod: Object, asked: str) -> str:
    """The container asked for, or the pod's only one; raises BadRequest as kube-apiserver does."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [
        each["name"]
        for group in ("containers", "initContainers", "ephemeralContainers")
        for each in spec.get(group) or ()
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
    if any(c.get("reason") == _GATED for c in status.get("conditions") or ()):
        word = _GATED
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
    unset={"spec": {"containers": None}},
    messages=POD_MESSAGES,
    status=True,
    generation=True,
    subresources={
        "log": Subresource("Pod", ("get",)),
        "attach": Subresource("PodAttachOptions", ("create", "get")),
        "exec": Subresource("PodExecOptions", ("create", "get")),
        "portforward": Subresource("PodPortForwardOptions", ("create", "get")),
        ephemeral_containers.SUBRESOURCE: Subresource("Pod", ("get", "patch", "update")),
        "proxy": Subresource("PodProxyOptions", PROXY_VERBS),
        "binding": Subresource("Binding", ("create",)),
        "eviction": Subresource("Eviction", ("create",), api=("policy", "v1")),
    },
    printer_columns=(
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
