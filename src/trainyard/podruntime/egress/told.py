"""What is said about the way out: by the agent to the shim, and by the shim to the relay."""

from __future__ import annotations

from typing import NamedTuple


class SetNetwork(NamedTuple):
    """Whether pods reach what the machine reaches, and which ``ports`` of its loopback."""

    is_open: bool
    ports: tuple[int, ...] = ()


class Name(NamedTuple):
    """An address that a Service's name stands for, with the own name of the pod that has it.
    ``ports``: its numbers of the Service's named ports, 0 where it has none."""

    address: str
    hostname: str = ""
    ports: tuple[int, ...] = ()


class Named(NamedTuple):
    """What is known of a Service. ``ports``: names of its ports, such as _http._tcp; ``alias``: of
    an ExternalName what it stands for."""

    names: tuple[Name, ...] = ()
    ports: tuple[str, ...] = ()
    is_headless: bool = False
    alias: str = ""


class SetNames(NamedTuple):
    """What has changed of Services, each by namespace/name: a ``Named`` as a JSON array, which only
    the relay reads, "" for one that is no more. ``is_all``: there are no others."""

    changed: dict[str, str]
    is_all: bool = False


class Told(NamedTuple):
    """Pods may reach these ``ports`` of the machine's loopback (None: as before); the pod at the
    address ``gone`` is no more. A file that comes along has a ``SetNames``."""

    ports: tuple[int, ...] | None = None
    gone: str = ""
