"""Old spellings of the API: accepted with a warning, and rewritten (decision 2).

Each kind lists its own as the `LEGACY` of its ``legacy.py``; this module rewrites them. The reader
of manifests, admission, the controller and ``trainyard convert`` use it. CRDs declare the old
fields too, or servers would prune them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Protocol

from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Path, Problem, error, format_path, warning

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rename:
    """``parent.old`` is written ``parent.new`` today."""

    parent: Keys
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """An integer field that is ignored; the field ``instead`` has its purpose today."""

    path: Keys
    instead: str


@dataclass(slots=True)
class Normalised:
    """An object in today's spelling.

    ``moves`` maps a path of the result to the path that the user wrote.
    """

    obj: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)
    moves: dict[Path, Path] = field(default_factory=dict)

    def written(self, path: Path) -> Path:
        """The path at which the user wrote a place of the result."""
        for end in range(len(path), 0, -1):
            if (moved := self.moves.get(path[:end])) is not None:
                return moved + path[end:]
        return path


class Editor(Protocol):
    """Builds and moves parts of a manifest's own text, comments included."""

    def mapping(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """A new mapping."""

    def sequence(self, content: list[Any]) -> list[Any]:
        """A new list."""

    def move(self, source: Any, key: str, target: Any, new: str) -> None:
        """Copy an entry into another mapping."""

    def insert(self, parent: Any, index: int, key: str, value: Any) -> None:
        """Put a new entry at a place among the others."""


class Layout(Protocol):
    """A former arrangement of a spec."""

    def normalise(self, result: Normalised, old: dict[str, Any] | None) -> None:
        """Rewrite an object; `old` as in `normalise`."""

    def convert(self, spec: dict[str, Any], editor: Editor) -> bool:
        """Rewrite a spec in place; whether it had to be."""

    def declare(self, spec: dict[str, Any]) -> None:
        """Add the old fields to the schema of a spec."""

    def paths(self) -> Iterator[tuple[Keys, str]]:
        """As `Legacy.paths`."""


RENAMES = (
    Rename(("spec", "runMode", "debug"), "enable", "enabled"),
    Rename(("spec", "runMode", "pause"), "enable", "enabled"),
    Rename(("spec", "scheduler", "t9kScheduler"), "Queue", "queue"),
)
"""Renames of all kinds that have old spellings."""
ELASTIC = Rename(("spec", "elastic"), "enable", "enabled")


@dataclass(frozen=True, slots=True)
class Legacy:
    """The old spellings of one kind."""

    renames: tuple[Rename, ...] = RENAMES
    dropped: tuple[Dropped, ...] = ()
    note: Callable[[Normalised], None] = lambda result: None
    """Warns about old fields that have no successor and stay as they are."""
    layout: Layout | None = None

    def paths(self) -> Iterator[tuple[Keys, str]]:
        """Path of each old spelling and a hint, for the documentation."""
        for rename in self.renames:
            yield (*rename.parent, rename.old), format_path((*rename.parent, rename.new))
        for dropped in self.dropped:
            yield dropped.path, f"spec.{dropped.instead}"
        if self.layout is not None:
            yield from self.layout.paths()


def normalise(
    obj: dict[str, Any], legacy: Legacy | None, old: dict[str, Any] | None = None
) -> Normalised:
    """``obj`` in today's spelling; the argument itself is left alone. ``legacy`` is its kind's.

    ``old`` is the stored object on an update: there the key that the request changed wins over the
    one that was stored, whereas two keys with different values in a new object are an error.
    """
    result = Normalised(dict(obj))
    if legacy is None or not isinstance(obj.get("spec"), dict):
        return result
    for rename in legacy.renames:
        _rename(result, rename, old)
    for dropped in legacy.dropped:
        _drop(result, dropped)
    legacy.note(result)
    if legacy.layout is not None:
        legacy.layout.normalise(result, old)
    return result


def value_at(obj: Any, path: Keys) -> Any:
    """What is at a path, None where nothing is."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def copy_mapping_at(result: Normalised, path: Keys) -> dict[str, Any]:
    """The mapping at a path that exists, copied along the way so that it may be changed."""
    here = result.obj
    for part in path:
        here[part] = dict(here[part])
        here = here[part]
    return here


def _rename(result: Normalised, rename: Rename, old: dict[str, Any] | None) -> None:
    parent = value_at(result.obj, rename.parent)
    if not isinstance(parent, dict) or rename.old not in parent:
        return
    path = (*rename.parent, rename.old)
    result.problems.append(warning(path, f"is an old spelling; write '{rename.new}'"))
    stored = value_at(old, rename.parent) if old is not None else None
    if old is not None and not isinstance(stored, dict):
        stored = {}
    chosen, is_contradiction = _chosen(parent, rename, stored)
    if is_contradiction:
        message = f"contradicts '{rename.new}'; remove '{rename.old}'"
        result.problems.append(error(path, message))
    # Keep the place of the key, so that a dump reads like the user's file.
    rest = {key: value for key, value in parent.items() if key != rename.new}
    renamed = {rename.new if key == rename.old else key: value for key, value in rest.items()}
    renamed[rename.new] = parent[chosen]
    copy_mapping_at(result, rename.parent[:-1])[rename.parent[-1]] = renamed
    if chosen == rename.old:
        result.moves[(*rename.parent, rename.new)] = path


def _chosen(
    parent: dict[str, Any], rename: Rename, stored: dict[str, Any] | None
) -> tuple[str, bool]:
    """The key whose value counts, and whether the two contradict each other.

    ``stored`` is the mapping as it was before an update, None for a new object.
    """
    if rename.new not in parent or parent[rename.new] == parent[rename.old]:
        return rename.old, False
    if stored is None:
        return rename.new, True
    missing = object()
    old_changed = stored.get(rename.old, missing) != parent[rename.old]
    new_changed = stored.get(rename.new, missing) != parent[rename.new]
    return (rename.old if old_changed else rename.new), old_changed and new_changed


def _drop(result: Normalised, dropped: Dropped) -> None:
    *parent, key = dropped.path
    config = value_at(result.obj, tuple(parent))
    if isinstance(config, dict) and key in config:
        result.problems.append(warning(dropped.path, f"is ignored; use {dropped.instead}"))
        if type(config[key]) is int:
            del copy_mapping_at(result, tuple(parent))[key]
