"""A viewer of training logs, whatever its kind, as the lifecycle sees it.

It is one pod that serves a page, and a Service. Other containers of the pod may fetch logs from
elsewhere.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.workload import Dependent, Manifest
from trainyard.schema.dataclass import dataclass


class ViewerPhase(StrEnum):
    """``status.phase`` of a viewer."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    FAILED = "Failed"


class ViewerCondition(StrEnum):
    """Types of a viewer's ``status.conditions``, in the order in which they are listed."""

    READY = "Ready"
    """The page can be opened."""
    LOGS_SERVED = "LogsServed"
    """All logs that the spec names can be looked at."""


class ViewerReason(StrEnum):
    """Reasons of a viewer's conditions and events."""

    RUNNING = "Running"
    STARTING = "Starting"
    SUSPENDED = "Suspended"
    INVALID_SPEC = "InvalidSpec"
    NO_LOGS = "NoLogs"
    NAME_CONFLICT = "NameConflict"
    CREATION_REFUSED = "CreationRefused"
    UNSCHEDULABLE = "Unschedulable"
    PROGRAM_MISSING = "ProgramMissing"
    CRASHED = "Crashed"
    ALL_SERVED = "AllServed"
    NOT_SERVED = "NotServed"
    FETCHING = "Fetching"
    FETCH_FAILED = "FetchFailed"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A valid viewer. `kind` names it in messages; `program` is its command and container."""

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    suspended: bool
    image: str
    program: str
    port: int
    installation: str
    """How an image gets the program."""
    logs_field: str
    """The field of the spec that names the logs."""
    pod: Manifest = field(repr=False, compare=False)
    service: Dependent = field(repr=False, compare=False)
    unserved: tuple[str, ...] = ()
    """Sentences, one for each source of logs that the spec names and that cannot be shown."""
    has_logs: bool = True
    fetchers: tuple[str, ...] = ()
    """Names of the containers that fetch logs from elsewhere."""

    @property
    def revision(self) -> str:
        """A digest of what the pod is built from; a pod with another one is replaced."""
        return str(self.pod["metadata"]["annotations"][labels.REVISION])

    @property
    def pod_name(self) -> str:
        """Name of the pod and of the Service."""
        return str(self.pod["metadata"]["name"])
