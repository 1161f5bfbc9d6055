"""Parts of objects as the API serves them, which views of such objects give a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]


class _At:
    """A part of a view's `obj`, by the keys that lead to it."""

    def __init__(self, *path: str, default: str = "") -> None:
        self._path, self._default = path, default

    def _in(self, view: Any) -> Any:
        found = view.obj
        for key in self._path:
            found = (found or {}).get(key)
        return found


class ObjectAt(_At):
    """Empty where it is absent or null."""

    def __get__(self, view: Any, _: type) -> Object:
        return self._in(view) or {}


class ListAt(_At):
    """Empty where it is absent or null."""

    def __get__(self, view: Any, _: type) -> Sequence[Object]:
        return self._in(view) or ()


class TextAt(_At):
    """The default where it is absent, null or empty."""

    def __get__(self, view: Any, _: type) -> str:
        return str(self._in(view) or self._default)
