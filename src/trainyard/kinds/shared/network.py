"""Where rank 0 is found: by name, or by a loopback address where pods have no names.

Without namespaces all pods of this machine share its network. Each pod then has a loopback
address of its own, computed from its name, and each job a port of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.kinds.shared import names
from trainyard.kinds.shared.settings import Settings
from trainyard.schema.names import fnv1a64

_FIRST_PORT, _PORTS = 20000, 12000
"""Below the ports that Linux gives to outgoing connections (32768 to 60999)."""


class Endpoint(NamedTuple):
    """A host name or address, and a port."""

    host: str
    port: int


def host_of(pod: str, settings: Settings) -> str:
    """What a pod is called by its peers."""
    return names.loopback_address(pod) if settings.plain_processes else pod


def endpoint(pod: str, uid: str, settings: Settings) -> Endpoint:
    """Where the pod with rank 0 listens for the others."""
    port = settings.master_port
    if settings.plain_processes:
        port = _FIRST_PORT + fnv1a64(uid.encode()) % _PORTS
    return Endpoint(host_of(pod, settings), port)
