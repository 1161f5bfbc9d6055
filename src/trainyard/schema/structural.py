"""Checks plain data against a schema in the dialect of CustomResourceDefinitions.

One walker serves the official pod schema and our own CRDs, so that the embedded server, the
command line and the controller find the same problems. Beyond the structural keywords it knows
``$ref`` (a name in ``definitions``) and ``format: quantity``.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from trainyard.schema import quantity
from trainyard.schema.errors import InvalidQuantity
from trainyard.schema.problems import Path, Problem, error, suggest

Schema = Mapping[str, Any]

INT64 = 2**63
UNKNOWN_FIELD = "unknown field"
"""The message about a field that does not exist."""
_ROOT = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
}
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}


def check(
    value: Any,
    schema: Schema,
    path: Path = (),
    definitions: Mapping[str, Schema] | None = None,
) -> list[Problem]:
    """Every problem of ``value``; paths start with ``path``."""
    problems: list[Problem] = []
    _walk(value, schema, path, definitions or {}, problems)
    return problems


def describe(value: Any) -> str:
    """A value in a message: its type, and the value itself when short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {str(value)[:40]}"
        case str():
            return f"the string '{value[:40]}'" if value else "an empty string"
        case dict():
            return "a mapping"
        case _:
            return "a list"


def wrong_type(value: Any, wanted: str) -> str:
    """The message for a value of the wrong type, with the fix where it is known."""
    text = f"must be {_WORDS[wanted]}, not {describe(value)}"
    if value is None:
        return f"has no value; remove the key or give it {_WORDS[wanted]}"
    if wanted == "string" and isinstance(value, bool | int | float):
        return f"{text}; quote it"
    if wanted in ("integer", "number", "boolean") and isinstance(value, str):
        plain = {"true", "false"} if wanted == "boolean" else None
        if value in plain if plain else value.lstrip("+-").isdigit():
            return f"{text}; remove the quotes"
    if wanted == "array" and isinstance(value, str):
        return f"{text}; write ['{value[:40]}']"
    return text


def _walk(
    value: Any, schema: Schema, path: Path, definitions: Mapping[str, Schema], out: list[Problem]
) -> None:
    if value is None and schema.get("nullable"):
        return
    if (reference := schema.get("$ref")) is not None:
        schema = definitions[reference]
    if "x-kubernetes-int-or-string" in schema:
        _int_or_string(value, schema, path, out)
        return
    wanted = schema.get("type")
    if wanted is None:
        return
    if not isinstance(value, _TYPES[wanted]) or (wanted != "boolean" and isinstance(value, bool)):
        out.append(error(path, wrong_type(value, wanted)))
    elif isinstance(value, dict):
        _object(value, schema, path, definitions, out)
    elif isinstance(value, list | tuple):
        _array(value, schema, path, definitions, out)
    else:
        _scalar(value, schema, path, out)


def _object(
    value: dict[str, Any],
    schema: Schema,
    path: Path,
    definitions: Mapping[str, Schema],
    out: list[Problem],
) -> None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    is_open = "x-kubernetes-preserve-unknown-fields" in schema
    for key, child in value.items():
        known = properties.get(key)
        if known is not None:
            _walk(child, known, (*path, key), definitions, out)
        elif isinstance(extra, Mapping):
            _walk(child, extra, (*path, key), definitions, out)
        elif properties and not is_open and not extra:
            out.append(unknown_field((*path, key), tuple(properties)))
    out.extend(
        error((*path, key), "is required")
        for key in schema.get("required", ())
        if value.get(key) is None
    )
    if len(value) > schema.get("maxProperties", INT64):
        out.append(error(path, f"has {len(value)} entries, at most {schema['maxProperties']}"))


def unknown_field(path: Path, known: Sequence[str]) -> Problem:
    """The problem of a field that does not exist; ``path`` ends with it."""
    return error(path, UNKNOWN_FIELD, suggest(str(path[-1]), known))


def _array(
    value: Sequence[Any],
    schema: Schema,
    path: Path,
    definitions: Mapping[str, Schema],
    out: list[Problem],
) -> None:
    items = schema.get("items")
    if items is not None:
        for index, child in enumerate(value):
            _walk(child, items, (*path, index), definitions, out)
    if len(value) < schema.get("minItems", 0):
        out.append(error(path, f"needs at least {schema['minItems']} items, has {len(value)}"))
    if len(value) > schema.get("maxItems", INT64):
        out.append(error(path, f"has {len(value)} items, at most {schema['maxItems']} allowed"))


def _scalar(value: Any, schema: Schema, path: Path, out: list[Problem]) -> None:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        choices = ", ".join(str(choice) for choice in allowed)
        out.append(
            error(path, f"must be one of {choices}, not '{value}'", suggest(str(value), allowed))
        )
        return
    if isinstance(value, str):
        _text(value, schema, path, out)
    elif not isinstance(value, bool):
        _bounds(value, schema, path, out)


def _text(value: str, schema: Schema, path: Path, out: list[Problem]) -> None:
    if len(value) < schema.get("minLength", 0):
        out.append(error(path, "must not be empty"))
    if len(value) > schema.get("maxLength", INT64):
        out.append(error(path, f"is longer than {schema['maxLength']} characters"))
    pattern = schema.get("pattern")
    if pattern is not None and not _compiled(pattern).search(value):
        out.append(error(path, f"'{value[:60]}' does not match {pattern}"))
    if schema.get("format") == "date-time" and not _is_time(value):
        out.append(error(path, f"'{value[:60]}' is not a time such as 2006-01-02T15:04:05Z"))


def _bounds(value: int | float, schema: Schema, path: Path, out: list[Problem]) -> None:
    low, high = schema.get("minimum", -INT64), schema.get("maximum", INT64 - 1)
    if value < low:
        out.append(error(path, f"must be at least {low}, is {value}"))
    elif value > high:
        out.append(error(path, f"must be at most {high}, is {value}"))


def _int_or_string(value: Any, schema: Schema, path: Path, out: list[Problem]) -> None:
    if schema.get("format") == "quantity":
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            if not _is_quantity(value):
                out.append(error(path, f"'{value}' is not a quantity such as 2, 500m, 16Gi or 1e3"))
        else:
            out.append(error(path, f"must be a quantity such as 500m, not {describe(value)}"))
    elif isinstance(value, bool) or not isinstance(value, str | int):
        out.append(error(path, f"must be an integer or a string, not {describe(value)}"))
    elif isinstance(value, int) and not -(2**31) <= value < 2**31:
        out.append(error(path, f"must be a 32-bit integer, is {value}"))


@lru_cache(maxsize=4096)
def _is_quantity(value: str | int | float) -> bool:
    try:
        quantity.parse(value)
    except InvalidQuantity:
        return False
    return True


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Pruned:
    """An object without the fields that its schema does not have, and what they were."""

    obj: dict[str, Any]
    unknown: tuple[Problem, ...]


def prune(obj: dict[str, Any], schema: Schema) -> Pruned:
    """Leaves out unknown fields, as a server does unless ``fieldValidation`` is Strict.

    The argument is not changed; it is returned itself when nothing was left out.
    """
    unknown: list[Problem] = []
    kept = _pruned(obj, schema, (), unknown)
    return Pruned(kept if unknown else obj, tuple(unknown))


def _pruned(value: Any, schema: Schema, path: Path, out: list[Problem]) -> Any:
    if isinstance(value, dict):
        return _pruned_object(value, schema, path, out)
    if isinstance(value, list) and "items" in schema:
        return [_pruned(v, schema["items"], (*path, n), out) for n, v in enumerate(value)]
    return value


def _pruned_object(
    value: dict[str, Any], schema: Schema, path: Path, out: list[Problem]
) -> dict[str, Any]:
    properties = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    is_open = "x-kubernetes-preserve-unknown-fields" in schema
    kept: dict[str, Any] = {}
    for key, child in value.items():
        here = (*path, key)
        if not path and key in _ROOT:
            kept[key] = child
        elif key in properties:
            kept[key] = _pruned(child, properties[key], here, out)
        elif isinstance(extra, Mapping):
            kept[key] = _pruned(child, extra, here, out)
        elif is_open:
            kept[key] = child
        else:
            out.append(unknown_field(here, tuple(properties)))
    return kept
