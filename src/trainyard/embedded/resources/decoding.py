"""Decodes JSON by Kubernetes' own types, before anything in the cluster reads an object.

Decoding does what Go's JSON decoder and encoder do together. A null is an absent field, and a null
in a list is an empty value. A status has all its required strings, numbers and flags, empty where a
client left them out. So readers of a stored object need not check the type of any field that a
schema names (decision 80).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.schema import kubernetes_schemas, structural_schema
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Path, Problem, error
from trainyard.schema.structural_schema import Schema, Walker

Object = dict[str, Any]

_MAX_DEPTH = 200
"""Levels of one object: orjson writes 254."""
_EMPTY: Mapping[str, Any] = {"string": "", "integer": 0, "boolean": False}


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object as the types of its schema hold it."""

    obj: Object
    """Without nulls and unknown fields."""
    malformed: Sequence[Problem] = ()
    """What the types cannot hold. Nothing may be read of an object where there is any."""
    errors: Sequence[Problem] = ()
    """What is missing, and choices that do not exist."""
    unknown: Sequence[Problem] = ()
    """Unknown fields."""


def decode(obj: Object, definition: str) -> Decoded:
    """`obj` (taken over) by one of the official definitions; "": by that of its metadata."""
    if malformed := remove_nulls(obj) if definition else normalize_untyped(obj):
        return Decoded(obj, malformed)
    known = kubernetes_schemas.definitions("served")
    decoder = _Decoder(known)
    if definition:
        decoder.visit(obj, known[definition], ())
    else:
        decoder.visit(obj.get("metadata", {}), known["ObjectMeta"], ("metadata",))
        for field in ("spec", "status"):
            if not isinstance(value := obj.get(field), dict | None):
                text = structural_schema.wrong_type(value, "object")
                decoder.errors.append(error((field,), text))
    pruned = structural_schema.without_unknown_fields(obj, decoder.problems)
    malformed = [each for each in decoder.problems if each not in pruned.unknown]
    return Decoded(pruned.obj, malformed, decoder.errors, pruned.unknown)


class _Decoder(Walker):
    """Separates values that a type cannot hold from values that are not allowed."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        super().__init__(definitions)
        self.errors: list[Problem] = []

    def _sequence(self, value: Sequence[Any], schema: Schema, path: Path) -> None:
        if isinstance(value, list) and None in value:
            empty = _EMPTY.get(schema.get("items", {}).get("type", ""))
            value[:] = [
                each if each is not None else {} if empty is None else empty for each in value
            ]
        super()._sequence(value, schema, path)

    def choice(self, value: Any, allowed: Sequence[str], path: Path) -> None:
        if value != "":  # to Go as good as absent
            super().choice(value, allowed, path)
            self.errors.append(self.problems.pop())

    def required(self, value: dict[str, Any], path: Path, schema: Schema) -> None:
        empty = _EMPTY.get(schema.get("type", ""))
        if path[0] == "status" and empty is not None:
            value[str(path[-1])] = empty
        else:
            super().required(value, path, schema)
            self.errors.append(self.problems.pop())


def normalize_untyped(obj: Object) -> list[Problem]:
    """Prepare an object without a schema: a null may mean something outside its metadata, and
    whole numbers are integers. What no JSON of ours can be is returned as a problem."""
    if problems := remove_nulls(obj, nulls=True) or remove_nulls(
        obj.get("metadata"), ("metadata",)
    ):
        return problems
    _integers_where_whole(obj)
    return []


def remove_nulls(value: Any, path: Path = (), *, nulls: bool = False) -> list[Problem]:
    """Take nulls out of all mappings unless `nulls` keeps them; returns what is not valid JSON."""
    problems: list[Problem] = []
    pending: list[tuple[Any, Path]] = [(value, path)]
    while pending:
        found, place = pending.pop()
        if len(place) > _MAX_DEPTH:
            return [error(place[:8], f"is nested more than {_MAX_DEPTH} levels deep")]
        if isinstance(found, dict):
            if not nulls and None in found.values():
                for key in [key for key, child in found.items() if child is None]:
                    del found[key]
            for key, child in found.items():
                if type(child) in _NESTED:
                    pending.append((child, (*place, key)))
                if type(key) is not str:
                    problems.append(error(place, f"the key {key!r} is not a string"))
        elif isinstance(found, list):
            pending += [(e, (*place, i)) for i, e in enumerate(found) if type(e) in _NESTED]
    return problems


def _integers_where_whole(part: dict[Any, Any] | list[Any]) -> None:
    """Make whole numbers integers: so Go would read them again."""
    for key, child in part.items() if isinstance(part, dict) else enumerate(part):
        if type(child) in _NESTED:
            _integers_where_whole(child)
        elif type(child) is float and child.is_integer() and abs(child) < 1 << 63:
            part[key] = int(child)


_NESTED = (dict, list)
