"""Objects of other systems, read so that what nobody took can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.schema.problems import Path

MOST_PODS = 20_000
"""Of a job: whoever lists them all, in rules, would else fill the memory for a slip of the pen."""
LEFT = "has no counterpart, and is left out"
_BY_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
"""In the metadata of an object that was read from a cluster."""


class CannotConvert(TrainyardError):
    """An object has no counterpart at all; the text says why and what to do."""


class Note(NamedTuple):
    """What is to be known of a field of the original."""

    path: Path
    text: str


@dataclass(slots=True)
class Fields:
    """A mapping of the original, from which fields are taken.

    What is neither taken nor told about in the end is told as `LEFT`.
    """

    _left: dict[str, Any]
    path: Path
    notes: list[Note]

    @classmethod
    def of(cls, obj: dict[str, Any]) -> Fields:
        """A whole object; what only servers and reports need is no part of it."""
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            own = {key: value for key, value in metadata.items() if key not in _BY_SERVERS}
            obj = {**obj, "metadata": own}
        return cls({key: obj[key] for key in obj if key != "status"}, (), [])

    def __contains__(self, key: str) -> bool:
        return self._left.get(key) is not None

    def peek(self, key: str) -> Any:
        """A value, which is left to be taken."""
        return self._left.get(key)

    def take(self, key: str, default: Any = None) -> Any:
        """A value with all that is in it; it counts as used."""
        found = self._left.pop(key, None)
        return default if found is None else found

    def number(self, key: str, default: int) -> int:
        """A whole number from 0."""
        found = self.take(key, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise CannotConvert(f"{self.at(key)} is no number from 0: {found!r:.40}")
        return found

    def pods(self, key: str, default: int = 1) -> int:
        """How many pods, or sets of them, there are to be."""
        found = self.number(key, default)
        if found > MOST_PODS:
            raise CannotConvert(f"{self.at(key)}: {found} are more than {MOST_PODS}")
        return found

    def into(self, key: str) -> Fields:
        """A mapping in this one, to take from; an empty one where it is absent."""
        found = self._left.pop(key, None)
        if found is not None and not isinstance(found, dict):
            raise CannotConvert(f"{self.at(key)} is no mapping")
        return Fields(dict(found or {}), (*self.path, key), self.notes)

    def each(self, key: str) -> list[Fields]:
        """The mappings of a list."""
        found = self._left.pop(key, None) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise CannotConvert(f"{self.at(key)} is no list of mappings")
        here = (*self.path, key)
        return [Fields(dict(each), (*here, n), self.notes) for n, each in enumerate(found)]

    def keys(self) -> list[str]:
        """What is left, in the order of the text."""
        return list(self._left)

    def at(self, key: str) -> str:
        """Where a field is, for messages."""
        from trainyard.schema.problems import format_path

        return format_path((*self.path, key))

    def tell(self, key: str, text: str) -> None:
        """Say something of a field, which counts as dealt with."""
        if self._left.pop(key, None) is not None:
            self.notes.append(Note((*self.path, key), text))

    def remark(self, key: str, text: str) -> None:
        """Say something of a field that was taken."""
        self.notes.append(Note((*self.path, key), text))

    def done(self, why: Callable[[str], str] = lambda _: LEFT) -> None:
        """Tell of every leaf that is left; `why` may say more of a key."""
        for key in list(self._left):
            value = self._left.pop(key)
            for path in leaves(value, (*self.path, key)):
                self.notes.append(Note(path, why(key)))


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all that is in a value and holds nothing more; empty collections too."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    else:
        yield path
