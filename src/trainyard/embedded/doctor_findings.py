"""Input and output of the checks of `trainyard doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Literal, NamedTuple

from trainyard.embedded.cluster_extension import Extension
from trainyard.machine.state_folder import Paths, RunningCluster
from trainyard.schema.dataclass import dataclass

FindingState = Literal["ok", "note", "problem"]


class Python(NamedTuple):
    """The interpreter that replicas run: its path and version, and its torch.

    ``cuda`` is that of its torch, or the version of ROCm; empty where it uses no GPU.
    """

    executable: str = ""
    version: str = ""
    torch: str = ""
    cuda: str = ""
    path: str = ""
    """The PATH of replicas, in which their programs are looked for."""
    foreign: str = ""
    """Where it has a package of our import name that is not ours."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of a check; `fix` says what to do if it is not ok."""

    check: str
    state: FindingState
    text: str
    fix: str = ""

    def as_json(self) -> dict[str, str]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What the checks look at: a state folder, and the cluster in it if one is up."""

    paths: Paths
    extension: Extension
    """What clusters are composed with here."""
    cluster: RunningCluster | None = None
    debug_report: Mapping[str, Any] = field(default_factory=dict)
    """The cluster's answer at `/debug/findings`."""
    folder_problem: str = ""
    """Why there is no state folder; `paths` is then of none."""
    no_answer_reason: str = ""
    """Why the cluster does not answer; "" if it does."""
    python: Python = field(default_factory=Python)

    @property
    def is_tenant(self) -> bool:
        """The caller uses another user's cluster and cannot see its files."""
        return self.cluster is not None and not self.cluster.is_ours
