"""What an API server does with an object before admission: it leaves out unknown fields.

The embedded server calls this for every kind that has a CustomResourceDefinition, so that it drops
and reports what a cluster with the same definitions would. The definitions' other rules need no
second evaluation there: admission has them all, which the tests of the definitions show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.api import crds
from trainyard.api import schema as walker
from trainyard.api.problems import Path, Problem

_ROOT = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class Pruned:
    """An object without the fields that its schema does not have, and what they were."""

    obj: dict[str, Any]
    unknown: tuple[Problem, ...]


def prune(obj: dict[str, Any]) -> Pruned:
    """Leaves out unknown fields, as a server does unless ``fieldValidation`` is Strict.

    The argument is not changed; it is returned itself when nothing was left out.
    """
    unknown: list[Problem] = []
    kept = _pruned(obj, crds.schema(obj["kind"]), (), unknown)
    return Pruned(kept if unknown else obj, tuple(unknown))


def _pruned(value: Any, schema: Mapping[str, Any], path: Path, out: list[Problem]) -> Any:
    if isinstance(value, dict):
        return _pruned_object(value, schema, path, out)
    if isinstance(value, list) and "items" in schema:
        return [_pruned(v, schema["items"], (*path, n), out) for n, v in enumerate(value)]
    return value


def _pruned_object(
    value: dict[str, Any], schema: Mapping[str, Any], path: Path, out: list[Problem]
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
            out.append(walker.unknown_field(here, tuple(properties)))
    return kept
