"""Containers that are added to a pod which runs, as by ``kubectl debug``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.embedded.node.pods.pod_status import ContainerRun

_SHELL = "sh"


def added(pod: Mapping[str, Any], runs: Iterable[ContainerRun]) -> list[ContainerRun]:
    """Those of the pod that are not among ``runs``."""
    known = {run.name for run in runs}
    return [
        ContainerRun(_with_program(each), is_ephemeral=True)
        for each in pod["spec"].get("ephemeralContainers", ())
        if each["name"] not in known
    ]


# Decision 267.
def _with_program(container: Mapping[str, Any]) -> Mapping[str, Any]:
    if container.get("command") or container.get("args"):
        return container
    return {**container, "command": [_SHELL]}
