"""What a user can say of an embedded cluster, and of a script that is to become a job.

Imports nothing heavy: it is needed before a cluster of one's own begins to start.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.embedded.node.shim_process import Isolation

Network = Literal["open", "none"]
"""What pods reach: what this machine reaches, or only each other."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """What an embedded cluster is to be like."""

    volumes: dict[str, str] = field(default_factory=dict)
    images: tuple[tuple[str, str], ...] = ()
    passed: tuple[str, ...] = ()
    """Names and patterns of variables."""
    resources: dict[str, str] = field(default_factory=dict)
    """Resource to quantity, as written."""
    is_strict: bool = False
    isolation: Isolation = "auto"
    pids_limit: int | None = None
    log_max_size: int | None = None
    """Bytes; None: what the command finds right."""
    log_max_files: int = 5
    network: Network = "open"
    allowed_ports: tuple[int, ...] = ()
    """Of this machine's loopback, for pods."""

    @property
    def is_default(self) -> bool:
        """Nothing was said: any cluster will do."""
        return self == ClusterShape()


@dataclass(frozen=True, slots=True)
class ScriptShape:
    """How a script is to be run; None, or empty: not said."""

    is_module: bool = False
    replicas: int | None = None
    processes: int | None = None
    gpus: int | None = None
    launcher: str | None = None
    name: str = ""
    env: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    elastic: tuple[int, int] | None = None
    queue: str = ""
    timeout: int | None = None
    """Seconds."""
    save: str | None = None
    is_checked: bool = True
    mounts: tuple[tuple[str, str], ...] = ()
    """Folders, or claims, and where they are mounted."""
    image: str = ""

    def __bool__(self) -> bool:
        return self != ScriptShape()
