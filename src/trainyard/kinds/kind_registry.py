"""The one table of served kinds: the folders of this package, and packages of others.

A folder beside this file that has a ``spec.py`` is a kind. A package from outside becomes one by
an entry point of the group ``trainyard.kinds`` that names its `KIND`. No list of kinds is kept
anywhere else. Entry points are read only when a name is asked for that none of ours has, or all
kinds are: looking through what is installed costs more than reading a manifest.
https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.kinds.kind import Kind
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.kinds.shared.job_settings import Settings
    from trainyard.kinds.shared.workload import Workload

__all__ = ["JOB_KINDS", "KINDS", "OUR_KINDS", "Kind", "describe", "kinds_by_launcher"]

ENTRY_POINTS = "trainyard.kinds"


class KindError(TrainyardError):
    """A package that offers a kind cannot be used."""


class Kinds(Mapping[str, Kind]):
    """Kinds by name, in their order."""

    def __init__(self, wanted: Callable[[Kind], bool] = lambda kind: True) -> None:
        self._wanted = wanted

    @cached_property
    def _all(self) -> dict[str, Kind]:
        kinds = sorted(
            (*_builtin_kinds().values(), *_external_kinds()),
            key=lambda kind: (kind.order, kind.kind),
        )
        return {kind.kind: kind for kind in kinds if self._wanted(kind)}

    def __getitem__(self, name: str) -> Kind:
        ours = _builtin_kinds().get(name)
        return ours if ours is not None and self._wanted(ours) else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


@cache
def _builtin_kinds() -> Mapping[str, Kind]:
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/spec.py"))
    kinds = (import_module(f"trainyard.kinds.{name}").KIND for name in names)
    return {kind.kind: kind for kind in kinds}


@cache
def _external_kinds() -> tuple[Kind, ...]:
    return tuple(_load_external_kinds()) if _is_any_external_installed() else ()


def _is_any_external_installed() -> bool:
    """Whether an installed package offers kinds.

    It reads the files itself, because `importlib.metadata` takes 30 ms, and mostly there is none.
    """
    wanted = f"[{ENTRY_POINTS}]".encode()
    return any(
        wanted in path.read_bytes()
        for folder in sys.path
        for path in Path(folder).glob("*.*-info/entry_points.txt")
    )


def _load_external_kinds() -> Iterator[Kind]:
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            kind = point.load()
        except (ImportError, AttributeError) as error:
            raise KindError(
                f"the kind {point.name} ({point.value}) cannot be loaded: {error}; "
                f"mend or uninstall the package {point.dist.name if point.dist else point.value}"
            ) from error
        if not isinstance(kind, Kind):
            raise KindError(f"{point.value} is not a trainyard.kinds.kind.Kind")
        if kind.kind in _builtin_kinds():
            raise KindError(f"{point.value} defines {kind.kind}, which trainyard has already")
        yield kind


KINDS = Kinds()
"""Every served kind by name."""

OUR_KINDS = Kinds(lambda kind: kind.package.startswith("trainyard."))
"""The kinds that trainyard itself brings, by name (decision 69)."""

JOB_KINDS = Kinds(lambda kind: kind.is_job)
"""The kinds that the controller runs as jobs, by name."""


def kinds_by_launcher() -> dict[str, Kind]:
    """Names of launchers of `trainyard run SCRIPT`, and the kind of job that each makes."""
    return {name: kind for kind in JOB_KINDS.values() for name in kind.launchers}


def describe(job: Job, settings: Settings) -> Workload:
    """The workload of a valid job of any kind; what it needs is imported when first used."""
    return KINDS[job.kind].describe(job, settings)
