"""What a function is made of, so that it can be called where only its Python is (decision 145).

A function of a script, a notebook or the interactive interpreter is carried by its source, with
the functions and classes of the same place that it names; other values by pickle, all at once, so
that what was one object stays one. Modules are imported where the function runs.
"""

from __future__ import annotations

import builtins
import functools
import io
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, MethodType, ModuleType
from typing import Any

from trainyard.api import function_sources
from trainyard.api.errors import CaptureError
from trainyard.api.function_sources import MAIN, Definition, comes_by_source

PROTOCOL = 4
"""Of pickle: the newest that Python 3.8 reads."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A function with its arguments, as `payloads/function_call.py` reads it."""

    call: dict[str, Any]
    """`call.json`, but for what the way there adds."""
    values: bytes
    modules: frozenset[str]
    """Modules that are imported where it runs."""


def capture(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Captured:
    """All that it takes to call `function(*args, **kwargs)` elsewhere; raises CaptureError."""
    keywords = dict(kwargs or {})
    while isinstance(function, functools.partial):
        args, keywords = (*function.args, *args), {**function.keywords, **keywords}
        function = function.func
    _check(function)
    name = function.__name__
    found = _Capture(name)
    found.take(function, tuple(args), keywords)
    call = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "name": name,
        "definitions": [each.describe() for each in found.definitions],
        "imports": found.imports,
        "steps": found.steps,
    }
    return Captured(call, bytes(found.values), frozenset(found.modules))


def _check(function: Any) -> None:
    """Refuse what is no function that can be carried."""
    name = getattr(function, "__name__", repr(function))
    if name == "<lambda>":
        raise CaptureError("a lambda cannot be run by replicas: give it a name, with def")
    if isinstance(function, MethodType):
        raise CaptureError(
            f"{name} is a method, bound to an object that is here: write a function that makes "
            "the object and calls it, and pass that"
        )
    code = getattr(function_sources.unwrapped(function), "__code__", None)
    if not isinstance(code, CodeType):
        raise CaptureError(
            f"{function!r} is not a function: write one that calls it, with def, and pass that"
        )
    if code.co_flags & function_sources.SUSPENDS:
        raise CaptureError(
            f"{name}() is a generator or a coroutine: write a function that runs it to its end, "
            "and pass that"
        )


@dataclass
class _Capture:
    """Collects what is needed, and decides in which order it is made again."""

    name: str
    definitions: list[Definition] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str | int, ...]] = field(default_factory=list)
    values: bytearray = field(default_factory=bytearray)
    modules: set[str] = field(default_factory=set)
    _numbers: dict[int, int] = field(default_factory=dict)
    """Of definitions, by the id of the object, which `_objects` keeps alive."""
    _objects: list[object] = field(default_factory=list)
    _globals: dict[str, Any] = field(default_factory=dict)
    _placed: set[int] = field(default_factory=set)
    _filled: set[int] = field(default_factory=set)

    def take(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """All that the call needs, in order."""
        self._scan(function, f"{self.name}()")
        named = [(f"argument {number}", each) for number, each in enumerate(args, 1)]
        for what, value in (*named, *((f"argument {k!r}", v) for k, v in keywords.items())):
            self._scan(value, f"{what} of {self.name}()")
        for number in range(len(self.definitions)):
            self._place(number)
        left = [n for n in range(len(self.definitions)) if n not in self._filled]
        self._load(
            {
                "globals": self._globals,
                "cells": {n: self.definitions[n].cells for n in left},
                "defaults": {n: self.definitions[n].defaults for n in left},
                "call": (function, args, keywords),
            }
        )

    # What is needed.

    def number(self, obj: Any) -> int:
        """The definition of a function or class that comes by its source."""
        if id(obj) not in self._numbers:
            found = function_sources.of(obj)
            number = self._numbers[id(obj)] = len(self.definitions)
            self.definitions.append(found)
            self._objects.append(obj)
            if found.module == MAIN:
                if function_sources.names_of(obj).get(found.qualname) is obj:
                    found.names.append(found.qualname)
                for name in sorted(found.needs):
                    self._bind(name, obj, found.qualname)
            self.modules.add(found.module)
            for name, value in found.cells.items():
                self._scan(value, f"{name!r}, which {found.qualname} takes from around it,")
            self._scan(found.defaults, f"a default of {found.qualname}()")
            return number
        return self._numbers[id(obj)]

    def _bind(self, name: str, user: Any, qualname: str) -> None:
        """What a name stands for where it is used."""
        names = function_sources.names_of(user)
        if name not in names or name in self.imports or name in self._globals:
            return
        value = names[name]
        if isinstance(value, ModuleType):
            self.imports[name] = value.__name__
            self.modules.add(value.__name__)
        elif comes_by_source(value):
            found = self.definitions[self.number(value)]
            if name not in found.names:
                found.names.append(name)
        elif getattr(builtins, name, names) is not value:
            self._globals[name] = value
            self._scan(value, f"the global {name!r}, which {qualname} uses,")

    def _scan(self, value: object, what: str) -> set[int]:
        """The definitions that a value refers to, which are found thereby."""
        pickler = _Pickler(_Nowhere(), self)
        try:
            pickler.dump(value)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(
                f"{what} cannot be carried to the replicas: {error}; make it inside the function, "
                "from what can be"
            ) from error
        return pickler.referred

    # In which order it is made.

    def _place(self, number: int) -> None:
        """A definition, after all that is used while it is made."""
        if number in self._placed:
            return
        self._placed.add(number)
        found = self.definitions[number]
        for name in sorted(self._at_once(found)) if found.module == MAIN else ():
            if name in self._globals:
                value = self._globals.pop(name)
                for other in self._scan(value, name):
                    self._place(other)
                self._load({"globals": {name: value}})
            for other, each in enumerate(self.definitions):
                if name in each.names and other != number:
                    self._place(other)
                    self._fill(other)
        self.steps.append(("define", number))

    def _at_once(self, found: Definition) -> set[str]:
        """Names that are looked up while it is made, by it or by what it calls then."""
        names, left = set[str](), list(found.at_once)
        while left:
            if (name := left.pop()) not in names:
                names.add(name)
                left += [
                    need for each in self.definitions if name in each.names for need in each.needs
                ]
        return names

    def _fill(self, number: int) -> None:
        """A function's variables and defaults, where it is called before all else is there."""
        found = self.definitions[number]
        if number not in self._filled and (found.cells or any(found.defaults)):
            self._filled.add(number)
            self._load({"cells": {number: found.cells}, "defaults": {number: found.defaults}})

    def _load(self, values: dict[str, Any]) -> None:
        file = io.BytesIO()
        _Pickler(file, self).dump(values)
        start = len(self.values)
        self.values += file.getbuffer()
        self.steps.append(("load", start, len(self.values)))


class _Nowhere:
    """Takes what is written, and keeps nothing of it."""

    def write(self, data: bytes) -> int:
        return len(data)


class _Pickler(pickle.Pickler):
    """Leaves definitions and modules out, which are told by their numbers and names."""

    def __init__(self, file: Any, capture: _Capture) -> None:
        super().__init__(file, PROTOCOL)
        self._capture = capture
        self.referred: set[int] = set()

    def persistent_id(self, obj: Any) -> tuple[str, int | str] | None:
        if isinstance(obj, ModuleType):
            self._capture.modules.add(obj.__name__)
            return "module", obj.__name__
        if comes_by_source(obj):
            number = self._capture.number(obj)
            self.referred.add(number)
            return "definition", number
        if isinstance(module := getattr(obj, "__module__", None), str):
            self._capture.modules.add(module)
        return None
