"""What is said about the way out: by the agent to the shim, and by the shim to the relay."""

from __future__ import annotations

from typing import NamedTuple


class SetNetwork(NamedTuple):
    """Whether pods reach what the machine reaches, and which ``ports`` of its loopback."""

    is_open: bool
    ports: tuple[int, ...] = ()


class Told(NamedTuple):
    """Pods may reach these ``ports`` of the machine's loopback (None: as before); the pod at the
    address ``gone`` is no more."""

    ports: tuple[int, ...] | None = None
    gone: str = ""
