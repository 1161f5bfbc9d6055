"""Containers of a pod that do not train, and how a job's status marks them (decision 108)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INIT, SIDECAR = "Init", "Sidecar"


def sidecars_of(spec: Mapping[str, Any]) -> frozenset[str]:
    """Names of the init containers in a pod's spec that keep running: sidecars.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    return frozenset(
        str(each["name"])
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )
