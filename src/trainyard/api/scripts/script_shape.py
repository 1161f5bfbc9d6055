"""The options of a script that is to become a job. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import field

from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ScriptShape:
    """How a script is to be run; None, or empty: not given."""

    is_module: bool = False
    replicas: int | None = None
    processes: int | None = None
    gpus: int | None = None
    launcher: str | None = None
    name: str = ""
    env: dict[str, str | None] = field(default_factory=dict)
    """Variables of the replicas; None for the value that this process has."""
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
