"""`dataclass` as the standard library has it, but that writes methods when they are first called.

`dataclasses` compiles six methods for each frozen class where it is defined, 0.5 ms in all with
Python 3.11. A command defines 150 classes and makes objects of few, so that this was a fifth of its
start (decision 164). Fields, slots, `replace`, `asdict` and `__match_args__` are the library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

Make = Callable[[], None]


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_OF_FROZEN = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}


def _made(
    plain: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    repr: bool = True,  # noqa: A002
) -> type:
    own = {name for name, value in vars(plain).items() if value is not None}
    plain.__doc__ = (
        plain.__doc__ or plain.__name__
    )  # the library's is a signature, and takes longer
    cls: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )(plain)

    def make_init() -> None:
        cls.__init__ = _init(cls, frozen=frozen)

    def make_rest() -> None:
        fields = [(each.name, each.type, copy(each)) for each in dataclasses.fields(cls)]
        made = dataclasses.make_dataclass(
            cls.__name__, fields, init=False, repr=repr, unsafe_hash=frozen
        )
        for name in rest:
            setattr(cls, name, vars(made)[name])

    rest = ["__eq__", *(["__repr__"] if repr else []), *(["__hash__"] if frozen else [])]
    rest = [name for name in rest if name not in own]
    if "__init__" not in own:
        cls.__init__ = _later(cls, "__init__", make_init)
    for name in rest:
        setattr(cls, name, _later(cls, name, make_rest))
    if not frozen and "__hash__" not in own:
        cls.__hash__ = None
    if frozen:
        for name, method in _OF_FROZEN.items():
            setattr(cls, name, method)
    return cls  # type: ignore[no-any-return]


def _later(cls: type, name: str, make: Make) -> Callable[..., Any]:
    def method(self: object, *args: object, **named: object) -> Any:
        make()
        return getattr(cls, name)(self, *args, **named)

    return method


def _init(cls: type, *, frozen: bool) -> Any:
    """`__init__` as the library writes it."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    in_place, by_name, body = ["self"], list[str](), list[str]()
    for each in dataclasses.fields(cls):
        name = value = argument = each.name
        if each.default_factory is not dataclasses.MISSING:
            known[f"_default_{name}"] = each.default_factory
            argument, value = f"{name}=_missing", f"_default_{name}()"
            value += f" if {name} is _missing else {name}" if each.init else ""
        elif each.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = each.default
            argument = f"{name}=_default_{name}"
            value = name if each.init else f"_default_{name}"
        elif not each.init:
            continue
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if each.init:
            (by_name if each.kw_only else in_place).append(argument)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join([*in_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"]), known)
    init = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, with the options of it that are used here."""
        return _made(cls, **options) if cls is not None else lambda each: _made(each, **options)
