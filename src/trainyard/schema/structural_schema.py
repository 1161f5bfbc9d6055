"""Checks plain data against a schema in the dialect of CustomResourceDefinitions.

One walker serves the official pod schema and our own CRDs, so that the embedded server, the
command line and the controller find the same problems. Beyond the structural keywords it knows
``$ref`` (a name in ``definitions``) and ``format: quantity``.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.schema import quantity, times
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import InvalidQuantity
from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest

Schema = Mapping[str, Any]

INT64 = 2**63
UNKNOWN_FIELD = "unknown field"
"""The message about a field that does not exist."""
_ROOT = ("apiVersion", "kind", "metadata")
_ANYTHING: Schema = {}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
}
_TYPE_TEXTS = {
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
    walker = Walker(definitions or {})
    walker.visit(value, schema, path)
    return walker.problems


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
        case list() | tuple():
            return "a list"
        case _:  # YAML has times
            return f"the {type(value).__name__} {value}"


def wrong_type(value: Any, wanted: str) -> str:
    """The message for a value of the wrong type, with the fix where it is known."""
    text = f"must be {_TYPE_TEXTS[wanted]}, not {describe(value)}"
    if value is None:
        return f"has no value; remove the key or give it {_TYPE_TEXTS[wanted]}"
    if wanted == "string" and isinstance(value, bool | int | float):
        return f"{text}; quote it"
    if wanted in ("integer", "number", "boolean") and isinstance(value, str):
        plain = {"true", "false"} if wanted == "boolean" else None
        if value in plain if plain else value.lstrip("+-").isdigit():
            return f"{text}; remove the quotes"
    if wanted == "array" and isinstance(value, str):
        return f"{text}; write {as_word_list(value)}"
    return text


def as_word_list(line: str) -> str:
    """A line as a list of its words, for a message: `['python', 'train.py']`."""
    is_shells = len(line.split()) > 1 and re.search(r"[\n|&;<>$`'\"\\]", line)
    words = ["sh", "-c", line] if is_shells else line.split() or [line]
    shown = str([word[:60] for word in words[:8]])
    return shown if len(words) <= 8 else f"{shown[:-1]}, …]"


class Walker:
    """Visits a value and its schema together, and collects problems.

    Messages are those for objects of Kubernetes; a subclass may word them differently.
    """

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self.definitions = definitions
        self.problems: list[Problem] = []

    def add(self, path: Path, message: str, suggestion: str = "") -> None:
        """Note a problem."""
        self.problems.append(error(path, message, suggestion))

    def visit(self, value: Any, schema: Schema, path: Path) -> None:
        """Note every problem of ``value`` and of what is in it."""
        wanted, kind = schema.get("type"), type(value)
        # Nearly all values are right, and of one of these types.
        if kind is dict and wanted == "object":
            self._mapping(value, schema, path)
        elif kind is str and wanted == "string":
            if len(schema) > 1:
                self._scalar(value, schema, path)
        elif value is None and schema.get("nullable"):
            return
        elif wanted is None:
            self._untyped(value, schema, path)
        elif not isinstance(value, _TYPES[wanted]) or (wanted != "boolean" and kind is bool):
            self.mismatch(value, wanted, path)
        elif isinstance(value, dict):
            self._mapping(value, schema, path)
        elif isinstance(value, list | tuple):
            self._sequence(value, schema, path)
        else:
            self._scalar(value, schema, path)

    def _untyped(self, value: Any, schema: Schema, path: Path) -> None:
        if (reference := schema.get("$ref")) is not None:
            self.visit(value, self.definitions[reference], path)
        elif "x-kubernetes-int-or-string" in schema:
            self._int_or_string(value, schema, path)

    def _mapping(self, value: dict[str, Any], schema: Schema, path: Path) -> None:
        properties, others = _fields(schema)
        for key, child in value.items():
            below = properties.get(key, others)
            if below is None:
                if properties:
                    self.unknown(child, schema, (*path, key))
            elif type(child) is not str or not _is_any_text(below):
                self.visit(child, below, (*path, key))
        for key in schema.get("required", ()):
            if value.get(key) is None:
                self.required(value, (*path, key), properties.get(key, _ANYTHING))
        if len(value) > schema.get("maxProperties", INT64):
            self.add(path, f"has {len(value)} entries, at most {schema['maxProperties']}")

    def _sequence(self, value: Sequence[Any], schema: Schema, path: Path) -> None:
        if (items := schema.get("items")) is not None:
            texts = _is_any_text(items)
            for index, child in enumerate(value):
                if not texts or type(child) is not str:
                    self.visit(child, items, (*path, index))
        if len(value) < schema.get("minItems", 0):
            self.add(path, f"needs at least {schema['minItems']} items, has {len(value)}")
        if len(value) > schema.get("maxItems", INT64):
            self.add(path, f"has {len(value)} items, at most {schema['maxItems']} allowed")

    def _scalar(self, value: Any, schema: Schema, path: Path) -> None:
        allowed = schema.get("enum")
        if allowed is not None and value not in allowed:
            self.choice(value, allowed, path)
        elif isinstance(value, str):
            self._text(value, schema, path)
        elif not isinstance(value, bool):
            self._bounds(value, schema, path)

    def _text(self, value: str, schema: Schema, path: Path) -> None:
        if len(value) < schema.get("minLength", 0):
            self.add(path, "must not be empty")
        if len(value) > schema.get("maxLength", INT64):
            self.add(path, f"is longer than {schema['maxLength']} characters")
        pattern = schema.get("pattern")
        if pattern is not None and not re.search(pattern, value):
            self.add(path, f"'{value[:60]}' does not match {pattern}")
        match schema.get("format"):
            case "date-time" if not times.is_time(value):
                self.add(path, f"'{value[:60]}' is not a time such as 2006-01-02T15:04:05Z")
            case "micro-time" if not times.is_micro_time(value):
                text = "is not a time such as 2006-01-02T15:04:05.000000Z"
                self.add(path, f"'{value[:60]}' {text}")
            case "byte" if not _is_base64(value):
                self.add(path, "is not base64")

    def _bounds(self, value: int | float, schema: Schema, path: Path) -> None:
        low, high = schema.get("minimum", -INT64), schema.get("maximum", INT64 - 1)
        if value < low:
            self.add(path, f"must be at least {low}, is {self.number(value)}")
        elif value > high:
            self.add(path, f"must be at most {high}, is {self.number(value)}")

    def mismatch(self, value: Any, wanted: str, path: Path) -> None:
        """Note a value of the wrong type."""
        self.add(path, wrong_type(value, wanted))

    def unknown(self, value: Any, schema: Schema, path: Path) -> None:
        """Note a field that does not exist; ``schema`` is that of the mapping around it."""
        self.problems.append(_unknown_field(path, schema))

    def choice(self, value: Any, allowed: Sequence[str], path: Path) -> None:
        """Note a value that is none of those allowed."""
        choices = ", ".join(str(choice) for choice in allowed)
        self.add(path, f"must be one of {choices}, not '{value}'", suggest(str(value), allowed))

    def required(self, value: dict[str, Any], path: Path, schema: Schema) -> None:
        """Note a field that is absent, or null; ``schema`` is the field's."""
        self.add(path, REQUIRED)

    def number(self, value: int | float) -> str:
        """How messages show a number."""
        return str(value)

    def _int_or_string(self, value: Any, schema: Schema, path: Path) -> None:
        if schema.get("format") == "quantity":
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                try:
                    quantity.parse(value)
                except InvalidQuantity as problem:
                    self.add(path, str(problem))
            else:
                self.add(path, f"must be a quantity such as 500m, not {describe(value)}")
        elif isinstance(value, bool) or not isinstance(value, str | int):
            self.add(path, f"must be an integer or a string, not {describe(value)}")
        elif isinstance(value, int) and not -(2**31) <= value < 2**31:
            self.add(path, f"must be a 32-bit integer, is {value}")


def child_schema(schema: Schema, key: str | int) -> Schema | None:
    """The schema of a part of a mapping or list; None where there is no such field."""
    if isinstance(key, int):
        items: Schema = schema.get("items", _ANYTHING)
        return items
    properties, others = _fields(schema)
    return properties.get(key, others)


def _fields(schema: Schema) -> tuple[Mapping[str, Schema], Schema | None]:
    """The schemas of the fields of a mapping, and that of all others, if there may be others."""
    extra = schema.get("additionalProperties")
    if extra is None or isinstance(extra, bool):
        is_open = extra or "x-kubernetes-preserve-unknown-fields" in schema
        return schema.get("properties", _ANYTHING), _ANYTHING if is_open else None
    return schema.get("properties", _ANYTHING), extra


def _is_any_text(schema: Schema) -> bool:
    """Whether the schema accepts every string."""
    return schema.get("type") == "string" and len(schema) <= 1 + ("nullable" in schema)


def _unknown_field(path: Path, schema: Schema) -> Problem:
    return error(path, UNKNOWN_FIELD, suggest(str(path[-1]), tuple(schema.get("properties", ()))))


def _is_base64(value: str) -> bool:
    try:
        binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Pruned:
    """An object without the fields that its schema does not have, and what they were."""

    obj: dict[str, Any]
    unknown: tuple[Problem, ...]


def prune(obj: dict[str, Any], schema: Schema) -> Pruned:
    """Leaves out unknown fields, as a server does unless ``fieldValidation`` is Strict, and nulls.

    The argument is not changed; it is returned itself when nothing was left out.
    """
    unfit = tuple(_unfit(obj, schema, ()))
    for problem in unfit:
        obj = without_field(obj, problem.path)
    return Pruned(obj, tuple(problem for problem in unfit if problem.message == UNKNOWN_FIELD))


def without_unknown_fields(obj: dict[str, Any], problems: Iterable[Problem]) -> Pruned:
    """``obj`` without what ``problems`` call unknown fields; the argument is not changed."""
    unknown = tuple(problem for problem in problems if problem.message == UNKNOWN_FIELD)
    for problem in unknown:
        obj = without_field(obj, problem.path)
    return Pruned(obj, unknown)


def without_field(value: Any, path: Path) -> Any:
    """A copy of ``value`` without the field at a path; shares what is beside the path."""
    head, rest = path[0], path[1:]
    if isinstance(value, dict) and head in value:
        if not rest:
            return {key: child for key, child in value.items() if key != head}
        return {**value, head: without_field(value[head], rest)}
    if isinstance(value, list) and isinstance(head, int) and head < len(value) and rest:
        return [*value[:head], without_field(value[head], rest), *value[head + 1 :]]
    return value


def _unfit(value: Any, schema: Schema, path: Path) -> Iterator[Problem]:
    """Every unknown field, whatever the types of the values, as a server prunes, and every field
    without a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in inside:
        inner = child_schema(schema, key)
        if inner is None:
            yield _unknown_field((*path, key), schema)
            continue
        is_open = inner is _ANYTHING or (not path and key in _ROOT)
        if is_open:
            continue
        if isinstance(child, dict | list):
            yield from _unfit(child, inner, (*path, key))
        elif child is None and not inner.get("nullable"):
            yield error((*path, key), REQUIRED)
