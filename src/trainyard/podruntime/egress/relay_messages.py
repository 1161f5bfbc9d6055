"""What is said about the way out: by the agent to the shim, and by the shim to the relay."""

from __future__ import annotations

from typing import NamedTuple


class RelayUpdate(NamedTuple):
    """Pods may reach these ``ports`` of the machine's loopback (None: as before); the pod at the
    address ``gone`` is no more. A file that comes along has a ``SetNames``."""

    ports: tuple[int, ...] | None = None
    gone: str = ""
