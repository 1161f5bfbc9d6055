"""What is found of one object and holds for all that are alike.

The pods of a job differ in their names, in host names and in values of variables. What their rules
say, and which fields somebody owns, is the same for all of them and need not be worked out again.
"""

from __future__ import annotations

from typing import Generic, TypeVar

_Found = TypeVar("_Found")
_MOST = 128
_MOST_BYTES = 16 << 10
"""Of one key: so they take 2 MiB at the most."""


class Lately(Generic[_Found]):
    """What was found last, by what all objects that are alike have in common."""

    def __init__(self) -> None:
        self._found: dict[bytes, _Found] = {}

    def get(self, key: bytes | None) -> _Found | None:
        """What was found of an object that is alike; None where that is not known."""
        return None if key is None else self._found.get(key)

    def keep(self, key: bytes | None, found: _Found) -> None:
        """Remember it, in place of the oldest where there is too much."""
        if key is None or len(key) > _MOST_BYTES:
            return
        if len(self._found) >= _MOST:
            del self._found[next(iter(self._found))]
        self._found[key] = found
