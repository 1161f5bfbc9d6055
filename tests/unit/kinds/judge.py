"""A judge of the definitions: validates and evaluates their CEL rules as an API server does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import cel

from trainyard.kinds.kind_registry import KINDS
from trainyard.schema import structural_schema as walker
from trainyard.schema.problems import Path, Problem, error

_ROOT = ("apiVersion", "kind", "metadata")


def validate(obj: dict[str, Any]) -> list[Problem]:
    """Structural problems of a pruned object: types, ranges, allowed values, required fields."""
    schema = KINDS[obj["kind"]].schema
    problems: list[Problem] = []
    for key, child in schema["properties"].items():
        if key not in _ROOT and key in obj:
            problems += [*walker.check(obj[key], child, (key,)), *_twice(obj[key], child, (key,))]
    problems += [
        error((key,), "is required") for key in schema.get("required", ()) if obj.get(key) is None
    ]
    return problems


def _twice(value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """Items that have the same map keys as one before them."""
    if isinstance(value, list) and (keys := schema.get("x-kubernetes-list-map-keys")):
        named = [_identity(item, keys) for item in value]
        for index, name in enumerate(named):
            if name in named[:index]:
                yield error((*path, index), f"is a second {name}")
    for here, child, _, child_schema in _children(value, None, schema):
        yield from _twice(child, child_schema, (*path, here))


def evaluate(obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Problem]:
    """Violations of the CEL rules by a valid object; with ``old`` also of those about changes."""
    problems: list[Problem] = []
    _evaluate(obj, old, KINDS[obj["kind"]].schema, (), problems)
    return problems


@cache
def _program(rule: str) -> cel.Program:
    return cel.compile(rule)


def _evaluate(
    value: Any, old: Any, schema: Mapping[str, Any], path: Path, out: list[Problem]
) -> None:
    for rule in schema.get("x-kubernetes-validations", ()):
        is_transition = "oldSelf" in rule["rule"]
        if is_transition and old is None:
            continue
        variables = {"self": value, "oldSelf": old} if is_transition else {"self": value}
        if _program(rule["rule"]).execute(variables) is not True:
            out.append(error(path, rule["message"]))
    for here, child, before, child_schema in _children(value, old, schema):
        _evaluate(child, before, child_schema, (*path, here), out)


def _children(
    value: Any, old: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str | int, Any, Any, Mapping[str, Any]]]:
    """The parts of a value, each with its former self: by key, in lists by their map keys."""
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, child_schema in schema.get("properties", {}).items():
            if key in value:
                yield key, value[key], before.get(key), child_schema
    elif isinstance(value, list) and "items" in schema:
        keys = schema.get("x-kubernetes-list-map-keys", ())
        named = {_identity(v, keys): v for v in old or ()} if keys else {}
        for index, child in enumerate(value):
            yield index, child, named.get(_identity(child, keys)), schema["items"]


def _identity(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in keys) if isinstance(item, dict) else (item,)
