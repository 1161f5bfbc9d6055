"""From plain data to a model: pydantic's errors as problems with the paths of the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from trainyard.schema import core
from trainyard.schema.model import Model
from trainyard.schema.problems import Path, Problem, error, suggest
from trainyard.schema.structural import UNKNOWN_FIELD, describe, wrong_type

_TYPE_ERRORS = {
    "int_type": "integer",
    "int_from_float": "integer",
    "bool_type": "boolean",
    "string_type": "string",
    "tuple_type": "array",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
}
_BOUNDS = {"greater_than_equal": ("least", "ge"), "less_than_equal": ("most", "le")}
_OPEN = frozenset(("metadata", "status", "template", "resources", "nodeSelector"))
"""Fields whose nulls mean what they mean to Kubernetes, or that are not checked here."""


def validate(
    obj: dict[str, Any], model: type[Model], *, open_templates: bool = False
) -> tuple[Model | None, list[Problem], set[Path]]:
    """The model of ``obj``, every structural problem, and the places that the model lacks.

    A model is returned beside problems when it could be had by leaving the faulty places out, so
    that further rules can be checked in the same pass, about all places but those. With
    ``open_templates`` fields that the bundled pod schema does not know pass: the cluster may be
    newer, and decides on them.
    """
    problems = [
        *_nulls(obj, ()),
        *(core.check_metadata(obj["metadata"], ("metadata",)) if "metadata" in obj else ()),
    ]
    for path in _templates(obj, model):
        problems += _template_problems(obj, path, open_templates)
    found, broken = _own(obj, model)
    known = {problem.path for problem in problems}
    problems += [problem for problem in broken if problem.path not in known]
    missing = {problem.path for problem in problems}
    trimmed = _without(obj, [problem.path for problem in problems]) if problems else None
    if trimmed is None:
        return found, problems, missing
    for path in _templates(trimmed, model):
        # What is left of a template may lack what the rules rely on.
        if _template_problems(trimmed, path, open_templates):
            trimmed = _removed(trimmed, path)
            missing.add(path)
    return _own(trimmed, model)[0], problems, missing


def _own(obj: Mapping[str, Any], model: type[Model]) -> tuple[Model | None, list[Problem]]:
    try:
        return model.model_validate(obj), []
    except ValidationError as failure:
        problems: dict[Path, Problem] = {}
        for item in failure.errors(include_url=False, include_context=True):
            problem = _problem(item, obj, model)
            problems.setdefault(problem.path, problem)
        return None, list(problems.values())


def _template_problems(obj: Any, path: Path, is_open: bool) -> list[Problem]:
    found = core.check_template(_at(obj, path), path)
    return [p for p in found if p.message != UNKNOWN_FIELD] if is_open else found


def _at(obj: Any, path: Path) -> Any:
    for part in path:
        obj = obj[part]
    return obj


def _nulls(value: Any, path: Path) -> Iterator[Problem]:
    """Keys without a value in our own fields: a server would refuse them."""
    if isinstance(value, dict):
        for key, child in value.items():
            if child is None and not (path == () and key in _OPEN):
                yield error((*path, key), "has no value; remove the key or give it one")
            elif isinstance(child, dict | list) and key not in _OPEN:
                yield from _nulls(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            if isinstance(child, dict | list):
                yield from _nulls(child, (*path, index))


def _templates(value: Any, model: Any, path: Path = ()) -> Iterator[Path]:
    """The places of pod templates: the fields ``template`` of a model and of those inside it."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _templates(entry, model, (*path, index))
    elif isinstance(value, dict):
        for name, field in model.model_fields.items():
            key = field.alias or name
            if key == "template" and isinstance(value.get(key), dict):
                yield (*path, key)
            elif key not in _OPEN and (inner := _inner(field.annotation)) is not None:
                yield from _templates(value.get(key), inner, (*path, key))


def _problem(item: Mapping[str, Any], obj: Mapping[str, Any], model: type[Model]) -> Problem:
    path, value = _existing(item["loc"], obj)
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return error(path, UNKNOWN_FIELD, suggest(str(path[-1]), _fields(model, path[:-1])))
    if kind == "missing":
        return error((*path, item["loc"][-1]), "is required")
    if kind == "literal_error":
        allowed = [word.strip("' ") for word in _words(context.get("expected", ""))]
        message = f"must be one of {', '.join(allowed)}, not {describe(value)}"
        hint = "" if isinstance(value, dict) else suggest(str(value), allowed)
        return error(path, message + _other_shape(path, value), hint)
    if kind in _TYPE_ERRORS:
        return error(path, wrong_type(value, _TYPE_ERRORS[kind]) + _other_shape(path, value))
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return error(path, f"must be at {word} {context[key]}, is {describe(value)}")
    if kind == "value_error":
        return error(path, str(context.get("error", item["msg"])))
    return error(path, item["msg"])


def _other_shape(path: Path, value: Any) -> str:
    """What to write where another kind's form of a restart policy was written."""
    policy = value.get("policy", "OnFailure") if isinstance(value, dict) else value
    if path[-1] != "restartPolicy" or policy not in ("Always", "OnFailure", "Never"):
        return ""
    return f"; write {policy}" if isinstance(value, dict) else f"; write {{policy: {policy}}}"


def _words(expected: str) -> Iterable[str]:
    return expected.replace(" or ", ", ").split(",")


def _existing(loc: Sequence[Any], obj: Any) -> tuple[Path, Any]:
    """The part of a location that is there; pydantic appends names of union members."""
    path: list[str | int] = []
    for part in loc:
        inside = (isinstance(obj, dict) and part in obj) or (
            isinstance(obj, list) and isinstance(part, int) and part < len(obj)
        )
        if not inside:
            break
        path.append(part)
        obj = obj[part]
    return tuple(path), obj


def _fields(model: Any, path: Path) -> tuple[str, ...]:
    """The field names of the model at a path, as they are spelt outside."""
    for part in path:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            by_alias = {field.alias or name: field for name, field in model.model_fields.items()}
            if part not in by_alias:
                return ()
            model = _inner(by_alias[part].annotation)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return tuple(field.alias or name for name, field in model.model_fields.items())
    return ()


def _inner(annotation: Any) -> Any:
    """The model inside ``Items[X]``, ``X | None`` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _inner(argument)
        if found is not None:
            return found
    return None


def _without(obj: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any] | None:
    """``obj`` without these places; None when that would take away an entry of our own lists."""
    out: dict[str, Any] = obj
    for path in paths:
        while path and isinstance(path[-1], int) and "template" in path:
            path = path[:-1]
        if not path or isinstance(path[-1], int):
            return None
        out = _removed(out, path)
    return out


def _removed(value: Any, path: Path) -> Any:
    """A copy of ``value`` without the place; shares what is beside the path."""
    head, rest = path[0], path[1:]
    if isinstance(value, dict) and head in value:
        if not rest:
            return {key: child for key, child in value.items() if key != head}
        return {**value, head: _removed(value[head], rest)}
    if isinstance(value, list) and isinstance(head, int) and head < len(value) and rest:
        return [*value[:head], _removed(value[head], rest), *value[head + 1 :]]
    return value
