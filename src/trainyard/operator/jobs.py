"""Jobs as the controller keeps them: the stored object, and the workload made from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainyard.api.job import Job
from trainyard.api.kinds import JOB_KINDS, Kind
from trainyard.kube.resources import Resource
from trainyard.workloads.settings import Settings
from trainyard.workloads.workload import Workload

log = logging.getLogger(__name__)


class JobKey(NamedTuple):
    """Which job; printed as kubectl would: `pytorchtrainingjob/default/mnist`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One stored job. `raw` must never be changed."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    is_deleting: bool
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def key(self) -> JobKey:
        """The job's key in the queue."""
        return JobKey(self.kind.kind, self.namespace, self.name)

    @property
    def status(self) -> dict[str, Any] | None:
        """The stored status as it is."""
        return self.raw.get("status")

    @classmethod
    def decode(cls, kind: Kind, raw: dict[str, Any]) -> JobRecord:
        """From a stored object of that kind; takes `raw` over."""
        metadata = raw["metadata"]
        metadata.pop("managedFields", None)
        return cls(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            generation=int(metadata.get("generation") or 0),
            is_deleting=bool(metadata.get("deletionTimestamp")),
            raw=raw,
        )


def resource_of(kind: Kind) -> Resource:
    """Where the objects of a kind are served."""
    return Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced)


@dataclass(frozen=True, slots=True)
class Broken:
    """A job that was stored although it breaks rules; `problems` says which, with paths."""

    problems: tuple[str, ...]


class Workloads:
    """The workload of each job, made anew only when the job's generation changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, tuple[int, Workload | Broken]] = {}

    def of(self, job: JobRecord) -> Workload | Broken:
        """What the job turns into, or why it cannot be run."""
        made = self._made.get(job.uid)
        if made is not None and made[0] == job.generation and job.generation:
            return made[1]
        described = self._describe(job)
        self._made[job.uid] = (job.generation, described)
        return described

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._made.pop(uid, None)

    def _describe(self, job: JobRecord) -> Workload | Broken:
        from trainyard import workloads
        from trainyard.api.admission import admit

        # Lists leave apiVersion and kind out. Pod fields that the bundled schema does not know are
        # left to the API server, which judges them when the pod is created.
        obj = {**job.raw, "apiVersion": job.kind.api_version, "kind": job.kind.kind}
        admission = admit(obj, open_templates=True)
        if admission.errors:
            return Broken(tuple(problem.detail for problem in admission.errors))
        assert isinstance(admission.model, Job)
        return workloads.describe(admission.model, self._settings)


def job_kinds() -> tuple[Kind, ...]:
    """The kinds that the controller runs."""
    return tuple(JOB_KINDS.values())
