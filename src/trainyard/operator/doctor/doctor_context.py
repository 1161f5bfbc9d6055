"""What the checks of `trainyard doctor` share about a cluster, and the form of a finding."""

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
    """The result of a check; `fix` says what to do where it is not ok."""

    check: str
    state: State
    text: str
    fix: str = ""


@dataclass(slots=True)
class DoctorContext:
    """What is known of the cluster so far; checks fill it in. Jobs are submitted to `namespace`."""

    client: Client
    namespace: str
    as_operator: bool = False
    """The user has the operator's own credentials."""
    version: tuple[int, int] = (0, 0)
    lease: Object | None = None
    pods: list[Object] = field(default_factory=list)
    """The pods of the operator."""
    settings: ServiceSettings | None = None
    """The settings of the running operator, where they could be read."""
    gang: GangBackend | None = None
    """The gang scheduler that jobs are handed to."""
    slowest: float = 0.0
    """The slowest of a few answers of the server, in seconds."""
    server_ahead: float = 0.0
    """Seconds by which the server's clock is ahead of this machine's."""

    @property
    def lease_settings(self) -> LeaseSettings:
        """The Lease settings of the operator, or their defaults."""
        known = self.settings.lease if self.settings else None
        return known or LeaseSettings()
