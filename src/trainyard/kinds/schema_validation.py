"""From plain data to a model: what is wrong with it, by the kind's schema and that of pods.

pydantic decodes, and is the judge of our own fields; only of those that it refuses the walker says
what is wrong with them, as it does with metadata and pod templates. What a validator of a model
refuses (a quantity, a duration) has the validator's own message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from trainyard.kinds.kind_registry import JOB_KINDS, Kind
from trainyard.schema import kubernetes_schemas
from trainyard.schema.model import INT32_MAX, Model
from trainyard.schema.problems import Path, Problem, error, suggest
from trainyard.schema.structural_schema import (
    UNKNOWN_FIELD,
    Schema,
    Walker,
    check,
    child_schema,
    describe,
    without_field,
    wrong_type,
)

_OLD_SPELLING = "Deprecated: write "
"""How a schema describes a field that `legacy` has renamed before anyone looks."""
_OPEN = ("metadata", "status", "template", "resources", "nodeSelector")
"""Fields whose nulls mean what they mean to Kubernetes, or that are not checked here."""
_ANYTHING: Schema = {}
_NO_NULLS: Schema = {"description": "Anything without nulls."}
_INT32 = {"minimum": -INT32_MAX - 1, "maximum": INT32_MAX}
_INDEX = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
_KEPT = ("type", "enum", "minimum", "maximum", "required")


def validate(
    obj: dict[str, Any], kind: Kind, *, open_templates: bool = False
) -> tuple[Model | None, list[Problem], set[Path]]:
    """The model of ``obj``, every structural problem, and the places that the model lacks.

    A model is returned beside problems when it could be had by leaving the faulty places out, so
    that further rules can be checked in the same pass, about all places but those. With
    ``open_templates`` fields that the bundled pod schema does not know pass: the cluster may be
    newer, and decides on them.
    """
    found = None
    try:
        found = kind.model.model_validate(obj)
    except ValidationError as failure:
        problems = _structural_problems(obj, _schema(kind), open_templates)
        known = {problem.path for problem in problems}
        for problem in _decoding_problems(failure, obj, kind):
            if problem.path not in known:
                known.add(problem.path)
                problems.append(problem)
    else:
        problems = _structural_problems(obj, _beyond_model(kind), open_templates)
    missing = {problem.path for problem in problems}
    trimmed = _without(obj, [problem.path for problem in problems]) if problems else None
    if trimmed is None:
        return None if problems else found, problems, missing
    # What is left of a template may lack what the rules rely on.
    for problem in _structural_problems(trimmed, _schema(kind), open_templates):
        if path := _template(problem.path):
            trimmed = without_field(trimmed, path)
            missing.add(path)
    try:
        return kind.model.model_validate(trimmed), problems, missing
    except ValidationError:
        return None, problems, missing


def _structural_problems(
    obj: dict[str, Any], schema: Schema, open_templates: bool
) -> list[Problem]:
    walker = _Walker(kubernetes_schemas.definitions("pod_template"))
    walker.visit(obj, schema, ())
    return [
        problem
        for problem in walker.problems
        if not (open_templates and problem.message == UNKNOWN_FIELD and _template(problem.path))
    ]


def _template(path: Path) -> Path:
    """The pod template that a place is in; empty where it is in none."""
    is_inside = path[:1] == ("spec",) and "template" in path[:-1]
    return path[: path.index("template") + 1] if is_inside else ()


def _decoding_problems(
    failure: ValidationError, obj: dict[str, Any], kind: Kind
) -> Iterator[Problem]:
    """What pydantic refuses, with the walker's message if it has one."""
    definitions = kubernetes_schemas.definitions("pod_template")
    fields = kind.schema["properties"] | {"metadata": definitions["ObjectMeta"]}
    for item in failure.errors(include_url=False):
        path, value, schema = _locate(item["loc"], obj, {"properties": fields})
        walker = _Walker(definitions)
        if item["type"] == "missing":
            walker.add((*path, item["loc"][-1]), "is required")
        elif item["type"] == "value_error":
            walker.add(path, str(item["ctx"]["error"]))
        elif "x-kubernetes-int-or-string" in schema:
            walker.visit(value, _INDEX, path)
        elif value is None and "type" in schema:
            walker.mismatch(value, schema["type"], path)
        elif schema.get("format") != "date-time":
            walker.visit(value, schema, path)
        yield from walker.problems or [error(path, item["msg"])]


def _locate(loc: Sequence[Any], obj: Any, schema: Schema) -> tuple[Path, Any, Schema]:
    """Path, value and schema of a location; pydantic appends names of union members to it."""
    path: list[str | int] = []
    for part in loc:
        inside = range(len(obj)) if isinstance(obj, list) else obj
        if not isinstance(obj, dict | list) or part not in inside:
            break
        path.append(part)
        obj, schema = obj[part], child_schema(schema, part) or _ANYTHING
    return tuple(path), obj, schema


class _Walker(Walker):
    """The walker over fields of ours: none may be null, and values are described."""

    def visit(self, value: Any, schema: Schema, path: Path) -> None:
        if value is None and _is_refused_null(path):
            self.add(path, "has no value; remove the key or give it one")
        elif "$ref" in schema:
            self.problems += check(value, schema, path, self.definitions)
        elif schema is _NO_NULLS and isinstance(value, dict | list):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value):
                if child is None or (isinstance(child, dict | list) and key not in _OPEN):
                    self.visit(child, schema, (*path, key))
        elif "enum" in schema and value not in schema["enum"]:
            self.choice(value, schema["enum"], path)
        else:
            super().visit(value, schema, path)

    def mismatch(self, value: Any, wanted: str, path: Path) -> None:
        self.add(path, wrong_type(value, wanted) + _restart_policy_hint(path, value))
        self.visit(value, _NO_NULLS, path)

    def unknown(self, value: Any, schema: Schema, path: Path) -> None:
        if value is None and _is_refused_null(path):
            self.visit(value, schema, path)
        else:
            if others := _kinds_with(path):
                have = f"{others[0]} has" if len(others) == 1 else f"{' and '.join(others)} have"
                self.add(path, f"{UNKNOWN_FIELD}; only {have} it")
            else:
                super().unknown(value, schema, path)
            if path[-1] not in _OPEN:
                self.visit(value, _NO_NULLS, path)

    def choice(self, value: Any, allowed: Sequence[str], path: Path) -> None:
        message = f"must be one of {', '.join(allowed)}, not {describe(value)}"
        hint = "" if isinstance(value, dict) else suggest(str(value), allowed)
        self.add(path, message + _restart_policy_hint(path, value), hint)
        self.visit(value, _NO_NULLS, path)

    def required(self, value: dict[str, Any], path: Path, schema: Schema) -> None:
        if path[-1] not in value:
            super().required(value, path, schema)

    def number(self, value: int | float) -> str:
        return describe(value)


def _is_refused_null(path: Path) -> bool:
    """Whether a null there is a key of ours without a value (decision 1)."""
    return isinstance(path[-1], str) and path[0] not in _OPEN


def _restart_policy_hint(path: Path, value: Any) -> str:
    """What to write instead of the form that a restart policy has in another kind."""
    policy = value.get("policy", "OnFailure") if isinstance(value, dict) else value
    if path[-1] != "restartPolicy" or policy not in ("Always", "OnFailure", "Never"):
        return ""
    return f"; write {policy}" if isinstance(value, dict) else f"; write {{policy: {policy}}}"


def _kinds_with(path: Path) -> list[str]:
    """Jobs of which kinds have a field of that name there."""
    return [name for name, kind in JOB_KINDS.items() if _has(_schema(kind), path)]


def _has(schema: Schema, path: Path) -> bool:
    """Whether a schema names the field, rather than leaves open what is there."""
    for part in path[:-1]:
        schema = child_schema(schema, part) or _ANYTHING
    return path[-1] in schema.get("properties", _ANYTHING)


@cache
def _schema(kind: Kind) -> Schema:
    """The schema of a kind, with those of pods and metadata in their places.

    Left out are old spellings, limits that only bound the cost of rules in CEL, and the status,
    which pydantic judges alone.
    """
    root = _own_schema(kind.schema)
    root["properties"] |= {"metadata": {"$ref": "ObjectMeta"}, "status": _ANYTHING}
    return root


@cache
def _beyond_model(kind: Kind) -> Schema:
    """What is left of a kind's schema to be looked at in an object that its model takes: pods,
    metadata, and nulls, which pydantic takes for absent values."""
    return _only_open_fields(_schema(kind))


def _only_open_fields(node: Schema) -> Schema:
    if "$ref" in node or node is _ANYTHING:
        return node
    fields = {key: _only_open_fields(child) for key, child in node.get("properties", {}).items()}
    if any(child is not _NO_NULLS for child in fields.values()):
        return {"type": "object", "properties": fields}
    items = _only_open_fields(node["items"]) if "items" in node else _NO_NULLS
    return _NO_NULLS if items is _NO_NULLS else {"type": "array", "items": items}


def _own_schema(node: Schema) -> dict[str, Any]:
    out: dict[str, Any] = dict(_INT32) if node.get("format") == "int32" else {}
    out |= {key: node[key] for key in _KEPT if key in node}
    if "properties" in node:
        out["properties"] = {
            key: _field(key, child)
            for key, child in node["properties"].items()
            if not child.get("description", "").startswith(_OLD_SPELLING)
        }
    for key in ("items", "additionalProperties"):
        if key in node:
            out[key] = _field(key, node[key])
    return out


def _field(name: str, node: Schema) -> Schema:
    if "x-kubernetes-int-or-string" in node:
        return _NO_NULLS
    is_open = "x-kubernetes-preserve-unknown-fields" in node
    if name == "template" and is_open:
        return {"$ref": "PodTemplateSpec"}
    if "properties" in node or not is_open:
        return _own_schema(node)
    return _ANYTHING if name in _OPEN else _NO_NULLS


def _without(obj: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any] | None:
    """``obj`` without these places; None when that would take away an entry of our own lists."""
    for path in paths:
        while path and isinstance(path[-1], int) and "template" in path:
            path = path[:-1]
        if not path or isinstance(path[-1], int):
            return None
        obj = without_field(obj, path)
    return obj
