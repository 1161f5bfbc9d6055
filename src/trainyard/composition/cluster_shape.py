"""What a user asks of an embedded cluster.

Imports nothing heavy: it is needed before a cluster begins to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.embedded.node.pod_runtime_process import Isolation

Network = Literal["open", "none"]
"""What pods reach: whatever this machine reaches, or only each other."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The options of an embedded cluster, as `trainyard up` and the Python API take them."""

    volumes: dict[str, str] = field(default_factory=dict)
    """Claim to the folder that stands for it."""
    images: tuple[tuple[str, str], ...] = ()
    """Pattern of images and the Python environment that stands for them; the first match wins."""
    passed: tuple[str, ...] = ()
    """Names and patterns of variables that containers inherit."""
    resources: dict[str, str] = field(default_factory=dict)
    """Resource to quantity, as written."""
    is_strict: bool = False
    isolation: Isolation = "auto"
    pids_limit: int | None = None
    log_max_size: int | None = None
    """Bytes; None: the default of the command."""
    log_max_files: int = 5
    network: Network = "open"
    allowed_ports: tuple[int, ...] = ()
    """Ports of this machine's loopback that pods may reach."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ClusterShape:
        """Return the shape whose fields went through JSON, which makes lists of tuples.

        Unknown fields, of a newer version say, are ignored.
        """
        known = cls.__dataclass_fields__
        return cls(**{name: _tuples(value) for name, value in fields.items() if name in known})

    @property
    def is_default(self) -> bool:
        """The user asked for nothing: any cluster will do."""
        return self == ClusterShape()


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
