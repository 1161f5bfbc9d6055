"""Ours behaves as the standard library's, whose methods are there from the beginning."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar

import pytest

from trainyard.schema.dataclass import dataclass


class _Plain:
    """What both make a dataclass of."""

    known: ClassVar[int] = 7
    name: str
    size: int = 3
    things: list[str] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=5, repr=False, compare=False)
    inner: dict[str, int] = dataclasses.field(default_factory=dict, init=False)
    odd: list[str] = dataclasses.field(default_factory=list, hash=False, kw_only=True)
    late: str = dataclasses.field(default="x", kw_only=True)


@dataclass(frozen=True, slots=True)
class Frozen:
    """Found by pickle at its place."""

    name: str
    size: int = 3


def _both(**options: bool) -> tuple[Any, Any]:
    def one(make: Any) -> Any:
        namespace = {n: v for n, v in vars(_Plain).items() if n not in ("__dict__", "__weakref__")}
        return make(**options)(type("Both", (), namespace))

    return one(dataclass), one(dataclasses.dataclass)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("kw_only", [True, False])
def test_it_is_what_the_standard_library_makes(frozen: bool, slots: bool, kw_only: bool) -> None:
    ours, theirs = _both(frozen=frozen, slots=slots, kw_only=kw_only)

    def observed(cls: Any) -> list[object]:
        named = {"name": "a", "size": 4}
        first, same, other = cls(**named), cls(**named, hidden=9), cls(name="b")
        observed = [repr(first), first == same, first != other, first == "a", cls.__match_args__]
        observed += [dataclasses.asdict(first), repr(dataclasses.replace(first, late="y"))]
        observed += [repr(copy.copy(first)), first.things is other.things, cls.known]
        observed += [hasattr(first, "__dict__"), cls.__hash__ is None]
        parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
        observed += [[(each.name, each.kind) for each in parameters]]
        for wrong in (dict, lambda: {"name": "a", "more": 1}, lambda: {**named, "inner": {}}):
            with pytest.raises(TypeError) as caught:
                cls(**wrong())
            observed.append(str(caught.value).rpartition("__init__")[2])
        try:
            first.name = "c"
        except dataclasses.FrozenInstanceError as error:
            observed.append(str(error))
        try:
            del first.name
        except dataclasses.FrozenInstanceError as error:
            observed.append(str(error))
        return [*observed, first.name if hasattr(first, "name") else None]

    assert observed(ours) == observed(theirs)


def test_it_lets_a_class_write_methods_of_its_own_and_inherit() -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        first: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "first", self.first + 1)

        def __hash__(self) -> int:
            return 4

        def __repr__(self) -> str:
            return f"<{self.first}>"

    @dataclass(frozen=True, slots=True)
    class More(Base):
        second: int = 0

    assert (repr(Base(1)), hash(Base(1)), Base(1) == Base(1)) == ("<2>", 4, True)
    assert (More(1, 2).first, More(1, 2) == More(1, 2), More(1) == Base(1)) == (2, True, False)
    assert len({More(1), More(1), More(2)}) == 2
    assert Base(1) == Base(1), "a class that inherits does not change its base"


def test_it_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Frozen("a", 2))) == Frozen("a", 2)
    assert {Frozen("a"): 1}[copy.deepcopy(Frozen("a"))] == 1
