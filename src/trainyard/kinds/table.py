"""The one table of served kinds: the folders of this package, and packages of others.

A folder beside this file that has a ``spec.py`` is a kind. A package from outside becomes one by
an entry point of the group ``trainyard.kinds`` that names its `KIND`. No list of kinds is kept
anywhere else. Entry points are read only when a name is asked for that none of ours has, or all
kinds are: looking through what is installed costs more than reading a manifest.
https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.kinds.kind import BATCH, SCHEDULER, TENSORSTACK, Kind
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.kinds.shared.job import Job
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import Workload

__all__ = [
    "BATCH",
    "JOB_KINDS",
    "KINDS",
    "OUR_KINDS",
    "SCHEDULER",
    "TENSORSTACK",
    "Kind",
    "describe",
]

ENTRY_POINTS = "trainyard.kinds"


class KindError(TrainyardError):
    """A package that offers a kind cannot be used."""


class Kinds(Mapping[str, Kind]):
    """Kinds by name, in their order."""

    def __init__(self, wanted: Callable[[Kind], bool] = lambda kind: True) -> None:
        self._wanted = wanted

    @cached_property
    def _ours(self) -> dict[str, Kind]:
        folder = Path(__file__).parent
        names = sorted(path.parent.name for path in folder.glob("*/spec.py"))
        found = (import_module(f"trainyard.kinds.{name}").KIND for name in names)
        return self._by_name(found)

    @cached_property
    def _all(self) -> dict[str, Kind]:
        return self._by_name((*self._ours.values(), *_from_outside(self._ours)))

    def _by_name(self, kinds: Iterable[Kind]) -> dict[str, Kind]:
        ordered = sorted(kinds, key=lambda kind: (kind.order, kind.kind))
        return {kind.kind: kind for kind in ordered if self._wanted(kind)}

    def __getitem__(self, name: str) -> Kind:
        return self._ours[name] if name in self._ours else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def _may_be_offered() -> bool:
    """Whether a package names our group; `importlib.metadata` alone takes 25 ms to tell."""
    folders = (Path(folder) for folder in sys.path)
    files = (file for folder in folders for file in folder.glob("*.*-info/entry_points.txt"))
    return any(f"[{ENTRY_POINTS}]" in file.read_text(errors="replace") for file in files)


def _from_outside(ours: Mapping[str, Kind]) -> Iterator[Kind]:
    if not _may_be_offered():
        return
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
        if kind.kind in ours:
            raise KindError(f"{point.value} defines {kind.kind}, which trainyard has already")
        yield kind


KINDS = Kinds()
"""Every served kind by name."""

OUR_KINDS = Kinds(lambda kind: kind.package.startswith("trainyard."))
"""The kinds that trainyard itself brings, by name."""

JOB_KINDS = Kinds(lambda kind: kind.is_job)
"""The kinds that the controller runs as jobs, by name."""


def describe(job: Job, settings: Settings) -> Workload:
    """The workload of a valid job of any kind; what it needs is imported when first used."""
    return KINDS[job.kind].describe(job, settings)
