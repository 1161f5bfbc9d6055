"""What an object must pass before it is stored: names, and what its resource says of it.

Field validation is Kubernetes' own: Strict refuses unknown and duplicate fields, Warn drops them
with a warning, Ignore drops them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.local.apiserver.bounds import MAX_CAUSES, shortened
from trainyard.local.apiserver.messages import Request
from trainyard.local.failures import Cause, bad_request, invalid
from trainyard.local.metadata import spec_differs
from trainyard.local.resources.resource import Object, Served
from trainyard.schema.problems import Problem

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY = re.compile(r"([a-z0-9A-Z.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
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
            raise bad_request(
                f"invalid fieldValidation {shortened(mode)!r}: one of {', '.join(_MODES)}"
            )
        return cls(mode, tuple(duplicates))

    def settle(self, unknown: Sequence[str]) -> list[str]:
        """Refuse the request, or return the warnings about unknown and duplicate fields."""
        notes = [f'duplicate field "{path}"' for path in self.duplicates]
        notes += [f"unknown field {text}" for text in unknown]
        if notes and self.mode == "Strict":
            raise bad_request(f"strict decoding error: {', '.join(notes[:MAX_CAUSES])}")
        return notes if self.mode == "Warn" else []


def create(
    served: Served, obj: Object, validation: FieldValidation, old: Object | None = None
) -> tuple[Object, list[str]]:
    """The object as it will be stored, and warnings; raises Invalid with every problem."""
    causes = _metadata_problems(obj)
    verdict = served.judge(obj, old)
    for problem in verdict.errors:
        detail = problem.detail.removeprefix(problem.where + ": ")
        causes.append(Cause(problem.where, f"Invalid value: {detail}"))
    notes = validation.settle([_quoted(problem) for problem in verdict.unknown])
    _refuse(served, obj, causes)
    return verdict.obj, [*notes, *verdict.warnings]


def update(
    served: Served, obj: Object, old: Object, validation: FieldValidation, status_only: bool
) -> tuple[Object, list[str]]:
    """As `create`, for a new version of `old`.

    What was stored although it is invalid can still get a status and lose a finalizer.
    """
    if status_only or not spec_differs(obj, old):
        _refuse(served, obj, _metadata_problems(obj))
        return obj, validation.settle([])
    return create(served, obj, validation, old)


def _quoted(problem: Problem) -> str:
    hint = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
    return f'"{problem.where}"{hint}'


def _refuse(served: Served, obj: Object, causes: Sequence[Cause]) -> None:
    if causes:
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        shown = causes[:MAX_CAUSES]
        if len(causes) > MAX_CAUSES:
            shown = [*shown, Cause("", f"and {len(causes) - MAX_CAUSES} more problems")]
        raise invalid(served.kind, served.resource.group, shortened(str(name)), shown)


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
