"""Objects of other systems, read so that every field that no converter took gets a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.schema.problems import Path, format_path

MAX_PODS = 20_000
"""Pods of one job: rules list all of them, and a typing error must not fill the memory."""
NO_COUNTERPART = "has no counterpart, and is left out"
_BY_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
"""Metadata that only a server sets."""


class CannotConvert(TrainyardError):
    """An object has no counterpart at all; the text says why and what to do."""


class Note(NamedTuple):
    """A remark on a field of the original, which the user sees."""

    path: Path
    text: str


@dataclass(slots=True)
class Fields:
    """A mapping of the original, from which a converter takes fields.

    `note_remaining` of the whole object adds a note for each field that was not taken, here or in a
    mapping that was. Methods raise CannotConvert for a value of the wrong type.
    """

    _left: dict[str, Any]
    path: Path
    notes: list[Note]
    _taken: list[Fields] = field(default_factory=list)
    """The mappings that were taken."""

    @classmethod
    def of(cls, obj: dict[str, Any]) -> Fields:
        """A whole object, without its type, its status, and what only servers set."""
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            own = {key: value for key, value in metadata.items() if key not in _BY_SERVERS}
            obj = {**obj, "metadata": own}
        left = {key: obj[key] for key in obj if key not in ("apiVersion", "kind", "status")}
        return cls(left, (), [])

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def peek(self, key: str) -> Any:
        """A value, which still has to be taken."""
        return self._left.get(key)

    def take(self, key: str, default: Any = None) -> Any:
        """Take a value with all that is in it; `default` where it is absent or null."""
        found = self._left.pop(key, None)
        return default if found is None else found

    def number(self, key: str, default: int) -> int:
        """Take a whole number from 0."""
        found = self.take(key, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise CannotConvert(f"{self.at(key)} is no number from 0: {found!r:.40}")
        return found

    def pod_count(self, key: str, default: int = 1) -> int:
        """Take a number of pods, `MAX_PODS` at most."""
        found = self.number(key, default)
        if found > MAX_PODS:
            raise CannotConvert(f"{self.at(key)}: {found} are more than {MAX_PODS}")
        return found

    def mapping(self, key: str) -> Fields:
        """Take a mapping, whose fields are tracked too; an empty one where it is absent."""
        found = self._left.pop(key, None)
        if found is not None and not isinstance(found, dict):
            raise CannotConvert(f"{self.at(key)} is no mapping")
        return self._track(found or {}, (*self.path, key))

    def mappings(self, key: str) -> list[Fields]:
        """Take a list of mappings, whose fields are tracked too."""
        found = self._left.pop(key, None) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise CannotConvert(f"{self.at(key)} is no list of mappings")
        return [self._track(each, (*self.path, key, n)) for n, each in enumerate(found)]

    def _track(self, found: dict[str, Any], path: Path) -> Fields:
        fields = Fields(dict(found), path, self.notes)
        self._taken.append(fields)
        return fields

    def keys(self) -> list[str]:
        """The fields not taken yet, in the order of the text."""
        return list(self._left)

    def at(self, key: str) -> str:
        """Where a field is, for messages."""
        return format_path((*self.path, key))

    def drop(self, key: str, text: str) -> None:
        """Leave a field out, with a note that says why; nothing where it is absent."""
        if self._left.pop(key, None) is not None:
            self.notes.append(Note((*self.path, key), text))

    def add_note(self, key: str, text: str) -> None:
        """Add a note about a field that was taken."""
        self.notes.append(Note((*self.path, key), text))

    def drop_all(self, reasons: Mapping[str, str]) -> None:
        """Leave several fields out, each with its reason."""
        for key, text in reasons.items():
            self.drop(key, text)

    def note_remaining(self, text: str = NO_COUNTERPART) -> None:
        """Note every leaf that was not taken, in the mappings that were taken too."""
        for key in list(self._left):
            for path in leaves(self._left.pop(key), (*self.path, key)):
                self.notes.append(Note(path, text))
        for fields in self._taken:
            fields.note_remaining(text)


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all scalars and empty collections in a value."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    else:
        yield path
