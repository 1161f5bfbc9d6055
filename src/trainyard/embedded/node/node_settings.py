"""Settings of the node agent, filled in by whoever composes the cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Self

from trainyard.embedded.node.containers.cgroups import default_pids_limit
from trainyard.embedded.node.containers.gpus import detect
from trainyard.kube import embedded_contract
from trainyard.podruntime.log_files import KUBERNETES, LogLimits
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """All durations in seconds. ``state_dir`` is the folder the shim was started with."""

    node_name: str
    state_dir: str
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Variables of the process that started the cluster; containers inherit some of them."""
    passed: tuple[str, ...] = ()
    """Names and patterns of more variables to inherit (``--pass-env``)."""
    images: tuple[tuple[str, str], ...] = ()
    """(image pattern as of fnmatch, virtual environment folder); the first match counts."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Claim name, or namespace/claim, to the folder that stands for it."""
    working_dir: str = ""
    """Where containers start whose pod names no folder, neither by workingDir nor annotation."""
    hidden: tuple[str, ...] = ()
    """Folders of clusters, beside ``state_dir``, that no pod may see; real paths."""
    python_prefix: str = sys.prefix
    """Of the environment that trainyard itself runs in."""
    called_as: str = field(default_factory=lambda: sys.argv[0])
    """The program name by which trainyard was called (``sys.argv[0]``)."""
    host_ip: str = "127.0.0.1"
    restart_delay: float = 1.0
    restart_delay_limit: float = 300.0
    log_limits: LogLimits = KUBERNETES
    pids_limit: int = field(default_factory=default_pids_limit)
    """Processes and threads that a container may have; 0: no limit."""
    is_network_open: bool = True
    """Pods reach what the machine reaches; otherwise only each other."""
    allowed_ports: tuple[int, ...] = ()
    """Of the machine's loopback, by the name of it that pods have."""
    gpus: tuple[int, ...] = field(default_factory=detect)
    """Minor numbers of the GPUs to hand out; pretended devices are none."""

    scheduler_names: tuple[str, ...] = ()
    """Values of ``schedulerName``, besides Kubernetes' own, that mean this cluster's scheduler."""
    internal_mount_paths: tuple[str, ...] = ()
    """See ``Extension``."""

    def of_pod(self, pod: Mapping[str, Any]) -> Self:
        """The same settings with the environments that the pod's annotation names, which win."""
        lines = str(
            pod["metadata"].get("annotations", {}).get(embedded_contract.IMAGES, "")
        ).splitlines()
        pairs = (line.partition("=") for line in lines)
        own = tuple((pattern, folder) for pattern, _, folder in pairs if folder.startswith("/"))
        return replace(self, images=(*own, *self.images)) if own else self
