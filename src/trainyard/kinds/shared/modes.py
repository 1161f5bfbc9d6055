"""Debug mode and resume: what changes in a pod that would otherwise run the training."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.shared.pods import change_container
from trainyard.kinds.shared.run import ReplicaDebugSet, ResumeSpec
from trainyard.kinds.shared.workload import Manifest

IDLE = ("sleep", "inf")
"""What a replica does in debug mode unless told otherwise."""


def idle(pod: Manifest, container: str, override: ReplicaDebugSet) -> None:
    """Let the training container wait for a developer (decision 29).

    Nothing may end it early: probes would fail without the training, hooks could start it.
    """
    change_container(
        pod,
        container,
        command=list(override.command or IDLE),
        args=None,
        livenessProbe=None,
        readinessProbe=None,
        startupProbe=None,
        lifecycle=None,
    )
    if override.skip_init_container:
        skip_init(pod)


def resume(pod: Manifest, container: str, override: ResumeSpec) -> None:
    """Let the training container start as it is to after a pause (decision 29)."""
    if override.skip_init_container:
        skip_init(pod)
    change: dict[str, Any] = {}
    if override.command is not None:
        change["command"] = list(override.command)
    if override.args is not None:
        change["args"] = list(override.args)
    change_container(pod, container, **change)


def skip_init(pod: Manifest) -> None:
    """Leave the init containers out."""
    pod["spec"].pop("initContainers", None)
