"""Hides what programs wrote from those who may see an object and not read its pods' logs.

The last lines of a failed replica stand in messages of pods, jobs and events, what hung in
ConfigMaps. So of a status only those texts are shown that are listed here, each by its path, and of
messages only those whose reason is listed. A field that is new is hidden until somebody adds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.resources.resource import Object
from trainyard.kube import embedded_contract
from trainyard.kube.resources import CONFIG_MAPS, EVENTS

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
_SHOWN = frozenset(
    [
        "phase",
        "reason",
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
        "allocatedResources.*",
        *(f"containerStatuses.{field}" for field in _IN_CONTAINERS),
        *(f"initContainerStatuses.{field}" for field in _IN_CONTAINERS),
        *(f"ephemeralContainerStatuses.{field}" for field in _IN_CONTAINERS),
    ]
)
"""Texts of a status that no program has a say in, by path; `*` is any key of a map."""
_OWN_REASONS = frozenset(
    [
        "Unschedulable",
        "ContainersNotReady",
        "PodCompleted",
        "DeadlineExceeded",
        "Scheduled",
        "FailedScheduling",
        "Created",
        "Started",
        "Pulled",
        embedded_contract.QUEUE_MAX_DURATION,
    ]
)
"""Reasons of conditions and events whose messages are the cluster's alone."""


class OutputFilter:
    """Hides texts of objects; the composer of the cluster adds what its kinds may show."""

    def __init__(self, extension: Extension) -> None:
        self._shown = _SHOWN | extension.shown_status_texts
        self._reasons = _OWN_REASONS | extension.own_message_reasons

    def hide(self, resource: str, obj: Object) -> Object:
        """A copy of an object of the resource (its full name) with what programs wrote hidden."""
        if resource == EVENTS.full_name:
            return self._with_message(obj, obj)
        if resource == CONFIG_MAPS.full_name:
            owners = obj["metadata"].get("ownerReferences") or ()
            if not any(owner.get("controller") for owner in owners):
                return obj
            shown = {key: value for key, value in obj.items() if key != "binaryData"}
            return shown | {
                "data": dict.fromkeys(obj.get("data") or (), embedded_contract.HIDDEN_OUTPUT)
            }
        status = obj.get("status")
        return (
            {**obj, "status": self._shown_part(status, "")} if isinstance(status, Mapping) else obj
        )

    def _shown_part(self, value: Any, path: str) -> Any:
        """A value of a status at this path; of lists the path is that of their items."""
        if isinstance(value, Mapping):
            shown = {
                key: self._shown_part(each, f"{path}.{key}" if path else key)
                for key, each in value.items()
            }
            return self._with_message(shown, value) if path == "conditions" else shown
        if isinstance(value, list):
            return [self._shown_part(each, path) for each in value]
        if not isinstance(value, str) or not value or _TIME.match(value):
            return value
        is_shown = path in self._shown or f"{path.rpartition('.')[0]}.*" in self._shown
        return value if is_shown else embedded_contract.HIDDEN_OUTPUT

    def _with_message(self, shown: Object, of: Mapping[str, Any]) -> Object:
        """The message of a condition or an event is shown if its reason says whose it is."""
        if not of.get("message"):
            return shown
        return shown | {
            "message": of["message"]
            if of.get("reason") in self._reasons
            else embedded_contract.HIDDEN_OUTPUT
        }
