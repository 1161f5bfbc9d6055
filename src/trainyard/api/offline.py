"""What can be done with manifests without any cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainyard.api.job_manifests import Manifest, read_manifest
from trainyard.manifest.reader import ReadResult, read
from trainyard.schema.problems import Problem


def validate(
    manifest: Manifest | Iterable[Manifest], *, cluster: str | None = None
) -> list[Problem]:
    """Every problem of a manifest, errors and warnings; none for a good one.

    With `cluster`, a version of Kubernetes such as `1.27`, also what a cluster of it would refuse
    (errors), drop or take for something else (warnings) of what is good here; `current` asks the
    kubeconfig's cluster for its version. Raises Error where that is none.
    """
    server = None
    if cluster is not None:
        from trainyard.api.versions import version_of

        server = version_of(cluster)
    return list(read_manifest(manifest, server).problems)


def render(manifest: Manifest | Iterable[Manifest] | ReadResult) -> list[dict[str, Any]]:
    """The objects that the controller would create for the jobs of a manifest.

    The hash in their names depends on the UID that a cluster gives the job. Raises InvalidManifest.
    """
    from trainyard.kinds.kind_registry import describe
    from trainyard.kinds.shared.job_settings import Settings
    from trainyard.kinds.shared.workload import objects

    jobs = read_manifest(manifest).require_jobs().jobs
    return [each for job in jobs for each in objects(describe(job, Settings()))]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A manifest that has been converted."""

    text: str
    notes: tuple[Problem, ...]
    """Old spellings that are gone; of another system's job, fields that have no counterpart."""
    is_foreign: bool
    """It was another system's."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with a job that was another system's."""
        return read(self.text, "the result").problems if self.is_foreign else ()


def convert(text: str) -> str:
    """A manifest's text in today's spelling, comments and order kept; or ours for the jobs of
    another system: Kubeflow's, Volcano's, or a script for Slurm's sbatch.

    A field of those that has no counterpart is told by Python's `warnings`. Raises
    InvalidManifest.
    """
    found = converted(text)
    for note in found.notes if found.is_foreign else ():
        warnings.warn(str(note), stacklevel=2)
    return found.text


def converted(text: str, file: str = "") -> Conversion:
    """The same, with what there is to know of it; raises InvalidManifest."""
    from trainyard.conversion.foreign_conversion import convert as convert_foreign
    from trainyard.conversion.legacy_conversion import convert

    if (foreign := convert_foreign(text, file)) is not None:
        return Conversion(foreign.text, foreign.notes, is_foreign=True)
    ours = convert(text, file)
    return Conversion(ours.text, ours.changes, is_foreign=False)
