"""`dataclass` as the standard library has it, without compiling methods where a class is defined.

With Python 3.11 `dataclasses` compiles six methods for each frozen class, which takes 0.7 ms.
`trainyard run` defines 150 such classes and makes objects of few of them: the library's would
lengthen its start by a fifth (decision 164). Here equality, hash and repr read the fields when they
are called, and `__init__` is compiled at its first call. Fields, slots, `replace`, `asdict` and
`__match_args__` are the library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_FROZEN_METHODS = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}


def _make(
    plain: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    repr: bool = True,  # noqa: A002
) -> type:
    own = {name for name, value in vars(plain).items() if value is not None}
    # Without a docstring, the library computes the signature for one, which takes long.
    plain.__doc__ = plain.__doc__ or plain.__name__
    cls: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )(plain)
    fields = dataclasses.fields(cls)

    def init_first_time(self: object, *args: object, **named: object) -> None:
        cls.__init__ = _compile_init(cls, frozen=frozen)
        cls.__init__(self, *args, **named)

    methods: dict[str, Any] = {"__init__": init_first_time, "__eq__": _make_eq(fields)}
    methods["__hash__"] = _make_hash(fields) if frozen else None
    if repr:
        methods["__repr__"] = _make_repr(fields)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    if frozen:
        for name, method in _FROZEN_METHODS.items():
            setattr(cls, name, method)
    return cls  # type: ignore[no-any-return]


_Fields = tuple[dataclasses.Field[Any], ...]


def _values_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads these attributes of an object into a tuple."""
    if len(names) > 1:
        return attrgetter(*names)  # which returns no tuple for one name
    return lambda self: tuple([getattr(self, name) for name in names])


def _make_eq(fields: _Fields) -> Any:
    values = _values_getter([each.name for each in fields if each.compare])

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _make_hash(fields: _Fields) -> Any:
    hashed = [each for each in fields if (each.compare if each.hash is None else each.hash)]
    values = _values_getter([each.name for each in hashed])
    return lambda self: hash(values(self))


def _make_repr(fields: _Fields) -> Any:
    names = [each.name for each in fields if each.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({inside})"

    return __repr__


def _compile_init(cls: type, *, frozen: bool) -> Any:
    """`__init__` as the library writes it."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    positional, by_name, body = ["self"], list[str](), list[str]()
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
            (by_name if each.kw_only else positional).append(argument)
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"]), known)
    init = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, with the options of it that are used here."""
        return _make(cls, **options) if cls is not None else lambda each: _make(each, **options)
