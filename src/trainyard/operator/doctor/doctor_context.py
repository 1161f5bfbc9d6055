"""A cluster that `trainyard doctor` looks at, and what a check of it finds."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, NamedTuple

from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kube.client import Client
from trainyard.operator.config.operator_settings import LeaseSettings, ServiceSettings
from trainyard.schema.dataclass import dataclass

Object = dict[str, Any]
State = Literal["ok", "note", "problem"]


class Finding(NamedTuple):
    """What a check found; `fix` says what to do where it is not ok."""

    check: str
    state: State
    text: str
    fix: str = ""


@dataclass(slots=True)
class DoctorContext:
    """A cluster, as far as it was looked at. `namespace` is where jobs are submitted."""

    client: Client
    namespace: str
    as_operator: bool = False
    """Whoever asks has the operator's own credentials."""
    version: tuple[int, int] = (0, 0)
    lease: Object | None = None
    pods: list[Object] = field(default_factory=list)
    """Of the operator."""
    settings: ServiceSettings | None = None
    """Of the operator that runs, where they could be read."""
    gang: GangBackend | None = None
    """What jobs are handed to."""
    slowest: float = 0.0
    """Seconds, of a few answers of the server."""
    server_ahead: float = 0.0
    """Seconds by which the server's clock is ahead of this machine's."""

    @property
    def lease_settings(self) -> LeaseSettings:
        """Of the operator, as far as they are known."""
        known = self.settings.lease if self.settings else None
        return known or LeaseSettings()
