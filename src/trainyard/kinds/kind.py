"""`Kind`: what other rooms may ask of a kind, without knowing which one it is.

A kind is a package with a `KIND` in its `__init__` and, beside it, `spec.py` (the model),
`rules.py` (what a schema cannot say), `crd.json` (generated from both by ``tools.crds``) and, for
jobs, `workload.py` (what it turns into); `legacy.py` where it has old spellings, `status.py` where
its status is not a job's. The row itself imports none of them: start-up is imports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.kinds.shared.labels import BATCH
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.kinds.shared.job_settings import Settings
    from trainyard.kinds.shared.legacy_spellings import Legacy
    from trainyard.kinds.shared.script import Script
    from trainyard.kinds.shared.workload import Workload
    from trainyard.schema.model import Model
    from trainyard.schema.problems import Problem

BACKOFF_LIMIT = 3
"""Restarts of a job whose `runPolicy` does not say how many (decision 4)."""
MIN_REPLICAS = 1
"""Of an elastic job whose `elastic` does not say how few it may have."""
LAUNCH_TIMEOUT_SECONDS = 600
"""Seconds of a launch over ssh whose `runPolicy` does not say how many (decision 101)."""

Rules = Callable[[Any], "list[Problem]"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; those with priority 1 show with ``-o wide`` only."""

    name: str
    type: str
    path: str
    priority: int = 0


AGE = Column("Age", "date", ".metadata.creationTimestamp")
PHASE = Column("Phase", "string", ".status.phase")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: its names, and what is particular to it.

    ``package`` is the Python package that defines it. ``elastic`` says whether it has a scale
    subresource, ``is_job`` whether the controller runs it.
    """

    kind: str
    plural: str
    short_names: tuple[str, ...]
    package: str
    group: str = BATCH
    version: str = "v1beta1"
    elastic: bool = False
    is_job: bool = True
    is_viewer: bool = False
    """Whether the controller serves it to people who look at what jobs log."""
    namespaced: bool = True
    training_containers: tuple[str, ...] = ()
    """Names of the container that trains, by preference; ``{type}`` stands for the replica type.
    Where a pod has none of them it is the first one."""
    status: str = "trainyard.kinds.shared.status:JobStatus"
    """The model of its status, `module:name`."""
    budget: str = "restartCount"
    """The field of status that counts restarts against the limit."""
    restart_policy: str = "OnFailure"
    """The restart policy of replicas whose spec has none (decision 3)."""
    launches_over_ssh: bool = False
    launchers: tuple[str, ...] = ()
    """The launchers with which `trainyard run SCRIPT` makes a job of this kind."""
    image: str = ""
    """The image of such a job, unless its user names one."""
    name_label: str = ""
    """A label of its own with the job's name, on everything that belongs to the job."""
    columns: tuple[Column, ...] = ()
    """Columns of ``kubectl get``; empty: those of a job."""
    order: int = 1000
    """Its position in lists of kinds: the lowest first, equal ones by name."""

    @property
    def singular(self) -> str:
        """Lower-case kind."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """Kind of a list of these."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """``group/version``."""
        return f"{self.group}/{self.version}"

    @property
    def full_name(self) -> str:
        """``plural.group``, the name of the CRD."""
        return f"{self.plural}.{self.group}"

    @property
    def resource(self) -> Resource:
        """Where its objects are served."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    @property
    def has_shared_budget(self) -> bool:
        """Whether `runPolicy.backoffLimit` limits the whole job; else each replica has a limit."""
        return self.budget == "backoffCount"

    @property
    def model(self) -> type[Model]:
        """The model of one object; imports its module."""
        model: type[Model] = getattr(import_module(f"{self.package}.spec"), self.kind)
        return model

    @property
    def status_model(self) -> type[Model]:
        """The model of its status; imports its module."""
        module, _, name = self.status.partition(":")
        model: type[Model] = getattr(import_module(module), name)
        return model

    @property
    def rules(self) -> Rules:
        """What a schema cannot say: model → problems; imports its module."""
        rules: Rules = import_module(f"{self.package}.rules").check
        return rules

    @property
    def cel(self) -> Mapping[tuple[str, ...], dict[str, str]]:
        """What a server can check by itself: rules in CEL, by the place below ``spec``."""
        found: Mapping[tuple[str, ...], dict[str, str]] = getattr(
            import_module(f"{self.package}.rules"), "CEL", {}
        )
        return found

    @property
    def legacy(self) -> Legacy | None:
        """Its old spellings; None for a kind that has none."""
        return _legacy(self.package)

    @property
    def crd(self) -> dict[str, Any]:
        """Its CustomResourceDefinition, as generated; shared, not to be changed."""
        return _crd(self.package)

    @property
    def schema(self) -> dict[str, Any]:
        """Its structural schema; shared, not to be changed."""
        (version,) = self.crd["spec"]["versions"]
        found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
        return found

    def load(self) -> None:
        """Import model, rules and workload now rather than with the first object."""
        _ = self.model, self.rules
        import_module(f"{self.package}.workload")

    def describe(self, job: Job, settings: Settings) -> Workload:
        """What a valid job turns into; imports the kind's workload."""
        build: Callable[[Job, Settings], Workload] = import_module(
            f"{self.package}.workload"
        ).describe
        return build(job, settings)

    def spec_of_script(self, script: Script) -> dict[str, Any]:
        """The spec of a job that runs a script; raises ScriptError. Imports the kind's module."""
        build: Callable[[Script], dict[str, Any]] = import_module(f"{self.package}.script").spec
        return build(script)

    def training_container(self, replica_type: str, names: Sequence[str]) -> str:
        """The container that trains among those of a replica's pod; "" for a pod without any."""
        wanted = (name.format(type=replica_type) for name in self.training_containers)
        return next((name for name in wanted if name in names), names[0] if names else "")

    def restarts(self, status: Mapping[str, Any]) -> int:
        """How many restarts a job's status counts against its limit."""
        return int(status.get(self.budget) or 0)


@cache
def _crd(package: str) -> dict[str, Any]:
    # Generated from the model and stored: to make it takes longer than starting the embedded
    # cluster may.
    # Not importlib.resources, which costs 5 ms to import.
    folder = Path(str(import_module(package).__file__)).parent
    found: dict[str, Any] = json.loads((folder / "crd.json").read_bytes())
    return found


@cache
def _legacy(package: str) -> Legacy | None:
    if find_spec(f"{package}.legacy") is None:
        return None
    found: Legacy = import_module(f"{package}.legacy").LEGACY
    return found
