"""Named tuples are the library's, but for what takes long where they are defined."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any

import pytest

from trainyard.schema.namedtuple import NamedTuple


class Place(NamedTuple):
    """Somewhere."""

    line: int
    file: str = "train.py"
    inner: Place | None = None
    """One below."""

    @property
    def text(self) -> str:
        """`train.py:3`."""
        return f"{self.file}:{self.line}"

    @classmethod
    def first(cls) -> Place:
        return cls(1)


class Nothing(NamedTuple):
    """No field at all."""


class Alike(typing.NamedTuple):
    """Somewhere."""

    line: int
    file: str = "train.py"
    inner: Any = None


def test_one_is_a_tuple_with_names_defaults_and_methods() -> None:
    place = Place(3)
    assert place == (3, "train.py", None)
    assert place.text == "train.py:3"
    assert Place.first() == Place(line=1)
    line, *_ = place._replace(line=4)
    assert line == 4
    assert repr(place) == "Place(line=3, file='train.py', inner=None)"
    assert Nothing() == ()
    with pytest.raises(TypeError, match="missing"):
        Place()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        place.line = 4  # type: ignore[misc]


def test_it_has_all_that_the_librarys_have() -> None:
    assert set(dir(Alike)) - set(dir(Place)) <= {"__orig_bases__"}
    assert (Place._fields, Place._field_defaults) == (Alike._fields, Alike._field_defaults)
    assert Place.__doc__ == "Somewhere."
    assert (Place.__module__, Place.__qualname__) == (__name__, "Place")
    ours, theirs = (inspect.signature(each).parameters for each in (Place, Alike))
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]


def test_its_types_can_be_asked_for() -> None:
    assert typing.get_type_hints(Place) == {"line": int, "file": str, "inner": Place | None}


def test_it_can_be_pickled_and_copied() -> None:
    place = Place(3, inner=Place(4))
    assert pickle.loads(pickle.dumps(place)) == place
    assert type(copy.deepcopy(place)) is Place


def test_a_field_without_a_default_does_not_follow_one_with_a_default() -> None:
    with pytest.raises(TypeError, match="a field of Odd without a default follows one with"):

        class Odd(NamedTuple):
            first: int = 0
            second: str  # type: ignore[misc]
