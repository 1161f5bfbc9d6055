"""Hides what programs wrote from those who may see an object and not read its pods' logs.

The last lines of a failed replica stand in messages of pods, jobs and events, what hung in
ConfigMaps. So of a status only those texts are shown that are listed here, each by its path, and of
messages only those whose reason is listed. A field that is new is hidden until somebody adds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.resources.resource import Object
from trainyard.kube.resources import CONFIG_MAPS, EVENTS

HIDDEN = "(for those who may read the logs here)"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)\Z")
_IN_CONTAINERS = [
    "name",
    "image",
    "imageID",
    "containerID",
    "state.waiting.reason",
    "state.terminated.reason",
    "state.terminated.containerID",
    "lastState.waiting.reason",
    "lastState.terminated.reason",
    "lastState.terminated.containerID",
]
_REFERENCE = ["apiVersion", "kind", "name", "namespace", "uid"]
_SHOWN = frozenset(
    [
        "phase",
        "reason",
        "state",
        "selector",
        "specHash",
        "action",
        "type",
        "url",
        "conditions.type",
        "conditions.status",
        "conditions.reason",
        "hostIP",
        "hostIPs.ip",
        "podIP",
        "podIPs.ip",
        "qosClass",
        "nominatedNodeName",
        "accessModes",
        "capacity.*",
        "allocated.*",
        "allocatedResources.*",
        "tasks.type",
        "tasks.replicas.name",
        "tasks.replicas.uid",
        "tasks.replicas.phase",
        "tasks.replicas.reason",
        "tasks.replicas.containers.name",
        "tasks.replicas.containers.role",
        "tasks.replicas.containers.state",
        "tasks.replicas.containers.reason",
        "attempts.replica",
        "attempts.reason",
        "goodput.state",
        "progress.replica",
        "progress.source",
        "stragglers.replica",
        "nodeCheck.state",
        "nodeCheck.badNodes.replica",
        "nodeCheck.badNodes.node",
        "nodeCheck.avoided",
        "tensorboard.name",
        "tensorboard.reason",
        "tensorboard.action",
        "tensorboard.type",
        "tensorboard.url",
        "pod.phase",
    ]
) | {
    f"{place}.{field}"
    for place, fields in (
        ("containerStatuses", _IN_CONTAINERS),
        ("initContainerStatuses", _IN_CONTAINERS),
        ("ephemeralContainerStatuses", _IN_CONTAINERS),
        ("tensorboard.dependent", _REFERENCE),
        ("pod.reference", _REFERENCE),
    )
    for field in fields
}
"""Texts of a status that no program has a say in, by path; `*` is any key of a map."""
_REASONS_OF_OURS = frozenset(
    [
        "NotFinished",
        "Paused",
        "Resumed",
        "Unschedulable",
        "NameConflict",
        "NoGangScheduler",
        "WaitsForAdmission",
        "Evicted",
        "FlavorUnknown",
        "Finished",
        "DeadlineExceeded",
        "QueueMaxDuration",
        "ContainersNotReady",
        "PodCompleted",
        "Stopped",
        "Created",
        "NewReplica",
        "Start",
        "Running",
        "Scaled",
        "Admitted",
        "SpecDrift",
        "Scheduled",
        "FailedScheduling",
        "Started",
        "SuccessfulCreate",
        "Pulled",
    ]
)
"""Reasons of conditions and events whose messages are the cluster's and the controller's alone."""


def without_program_output(resource: str, obj: Object) -> Object:
    """A copy of an object of the resource (its full name) with what programs wrote hidden."""
    if resource == EVENTS.full_name:
        return _with_message(obj, obj)
    if resource == CONFIG_MAPS.full_name:
        owners = obj["metadata"].get("ownerReferences") or ()
        if not any(owner.get("controller") for owner in owners):
            return obj
        shown = {key: value for key, value in obj.items() if key != "binaryData"}
        return shown | {"data": dict.fromkeys(obj.get("data") or (), HIDDEN)}
    status = obj.get("status")
    return {**obj, "status": _shown(status, "")} if isinstance(status, Mapping) else obj


def _shown(value: Any, path: str) -> Any:
    """A value of a status at this path; of lists the path is that of their items."""
    if isinstance(value, Mapping):
        shown = {key: _shown(each, f"{path}.{key}" if path else key) for key, each in value.items()}
        return _with_message(shown, value) if path == "conditions" else shown
    if isinstance(value, list):
        return [_shown(each, path) for each in value]
    if not isinstance(value, str) or not value or _TIME.match(value):
        return value
    is_shown = path in _SHOWN or f"{path.rpartition('.')[0]}.*" in _SHOWN
    return value if is_shown else HIDDEN


def _with_message(shown: Object, of: Mapping[str, Any]) -> Object:
    """The message of a condition or an event is shown if its reason says that it is ours."""
    if not of.get("message"):
        return shown
    return shown | {"message": of["message"] if of.get("reason") in _REASONS_OF_OURS else HIDDEN}
