"""What an object must pass before it is stored: names, schemas, and the rules of the job kinds.

The rules of our own kinds are those of `trainyard.kinds.admission`, the very function that the
command line and the controller use. Field validation is Kubernetes' own: Strict refuses unknown
and duplicate fields, Warn drops them with a warning, Ignore drops them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainyard.local.apiserver.http import Request
from trainyard.local.failures import Cause, bad_request, invalid
from trainyard.local.resources.served import Served
from trainyard.schema.problems import Path, Problem

Object = dict[str, Any]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9A-Z.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_UNKNOWN = "unknown field"
_MODES = ("Strict", "Warn", "Ignore")


@dataclass(frozen=True, slots=True)
class FieldValidation:
    """What to do about fields that nobody knows."""

    mode: str
    duplicates: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: Request, duplicates: list[str]) -> FieldValidation:
        """As the request asks; Warn is the default, as in Kubernetes."""
        mode = request.query.get("fieldValidation") or "Warn"
        if mode not in _MODES:
            raise bad_request(f"invalid fieldValidation {mode!r}: one of {', '.join(_MODES)}")
        return cls(mode, tuple(duplicates))

    def settle(self, unknown: Sequence[str]) -> list[str]:
        """Refuse the request, or return the warnings about unknown and duplicate fields."""
        notes = [f'duplicate field "{path}"' for path in self.duplicates]
        notes += [f"unknown field {text}" for text in unknown]
        if notes and self.mode == "Strict":
            raise bad_request(f"strict decoding error: {', '.join(notes)}")
        return notes if self.mode == "Warn" else []


class _Verdict(NamedTuple):
    obj: Object
    warnings: list[str]
    errors: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class Admitter:
    """Admission of every kind."""

    def create(
        self, served: Served, obj: Object, validation: FieldValidation
    ) -> tuple[Object, list[str]]:
        """The object as it will be stored, and warnings; raises Invalid with every problem."""
        return _admit(served, obj, None, validation)

    def update(
        self,
        served: Served,
        obj: Object,
        old: Object,
        validation: FieldValidation,
        status_only: bool,
    ) -> tuple[Object, list[str]]:
        """As `create`, for a new version of `old`.

        What was stored although it is invalid can still get a status and lose a finalizer.
        """
        if status_only or _same_content(obj, old):
            _refuse(served, obj, _metadata_problems(obj))
            return obj, validation.settle([])
        return _admit(served, obj, old, validation)


def _admit(
    served: Served, obj: Object, old: Object | None, validation: FieldValidation
) -> tuple[Object, list[str]]:
    causes = _metadata_problems(obj)
    if served.custom:
        verdict, unknown = _judge_custom(served, obj, old)
    else:
        verdict, unknown = _judge_core(served, obj)
    notes = validation.settle([_quoted(problem) for problem in unknown])
    _refuse(served, obj, [*causes, *(_cause(problem) for problem in verdict.errors)])
    return verdict.obj, [*notes, *verdict.warnings]


def _judge_custom(
    served: Served, obj: Object, old: Object | None
) -> tuple[_Verdict, Sequence[Problem]]:
    """Prune by the definition's schema, then apply the rules of the kind.

    The rules also see into pod templates, where nothing is pruned: what is unknown there is
    refused, because a command that was silently left out would run something else.
    """
    from trainyard.kinds import admission
    from trainyard.kinds.crds import schema as schema_of
    from trainyard.schema import structural

    obj.setdefault("kind", served.kind)
    obj.setdefault("apiVersion", served.api_version)
    pruned = structural.prune(obj, schema_of(served.kind))
    admitted = admission.admit(pruned.obj, old)
    warnings = [problem.detail for problem in admitted.warnings]
    return _Verdict(admitted.obj, warnings, admitted.errors), pruned.unknown


def _judge_core(served: Served, obj: Object) -> tuple[_Verdict, Sequence[Problem]]:
    """Check against the official schema; unknown fields are dropped."""
    from trainyard.schema import core, structural

    problems: Sequence[Problem] = ()
    if served.resource == "pods":
        known = core.definitions("pod_template")
        problems = structural.check(obj.get("spec"), known["PodSpec"], ("spec",), known)
    elif not served.group and served.kind in core.CORE_KINDS:
        problems = core.check_core({"kind": served.kind, **obj})
    unknown = [problem for problem in problems if problem.message == _UNKNOWN]
    for problem in unknown:
        _prune(obj, problem.path)
    errors = [problem for problem in problems if problem.message != _UNKNOWN]
    return _Verdict(obj, [], errors), unknown


def _same_content(obj: Object, old: Object) -> bool:
    ignored = ("metadata", "status", "apiVersion", "kind")
    return all(
        obj.get(key) == old.get(key) for key in obj.keys() | old.keys() if key not in ignored
    )


def _prune(obj: Any, path: Path) -> None:
    for part in path[:-1]:
        obj = obj[part]
    obj.pop(path[-1], None)


def _quoted(problem: Problem) -> str:
    hint = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
    return f'"{problem.where}"{hint}'


def _cause(problem: Problem) -> Cause:
    text = f"Invalid value: {problem.detail.removeprefix(problem.where + ': ')}"
    return Cause(problem.where, text)


def _refuse(served: Served, obj: Object, causes: Sequence[Cause]) -> None:
    if causes:
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        raise invalid(served.kind, served.group, str(name), causes)


def _metadata_problems(obj: Object) -> list[Cause]:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [Cause("metadata", "Required value: an object has metadata")]
    problems: list[Cause] = []
    name = metadata.get("name")
    if name is not None and (
        not isinstance(name, str) or len(name) > 253 or not _SUBDOMAIN.fullmatch(name)
    ):
        problems.append(
            Cause(
                "metadata.name",
                f"Invalid value: {name!r}: lower case letters, digits, '-' and '.' only, "
                "beginning and ending with a letter or digit",
            )
        )
    for field, rule in (("labels", _LABEL_VALUE), ("annotations", None)):
        pairs = metadata.get(field) or {}
        if not isinstance(pairs, dict):
            problems.append(Cause(f"metadata.{field}", "Invalid value: must be a mapping"))
            continue
        for key, value in pairs.items():
            path = f"metadata.{field}"
            if not _LABEL_KEY.fullmatch(key):
                problems.append(Cause(path, f"Invalid value: {key!r} is not a qualified name"))
            if not isinstance(value, str):
                problems.append(
                    Cause(f"{path}.{key}", f"Invalid value: {value!r}: must be a string")
                )
            elif rule is not None and not rule.fullmatch(value):
                problems.append(Cause(path, f"Invalid value: {value!r} is not a label value"))
    return problems
