"""What an object must pass before it is stored: names, and what its resource says of it.

Field validation is Kubernetes' own: Strict refuses unknown and duplicate fields, Warn drops them
with a warning, Ignore drops them.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.local.apiserver.bounds import MAX_CAUSES, shortened
from trainyard.local.apiserver.messages import Request
from trainyard.local.failures import Cause, bad_request, causes, invalid, malformed
from trainyard.local.metadata import spec_differs
from trainyard.local.resources.metadata_rules import metadata_problems
from trainyard.local.resources.resource import Object, Served
from trainyard.local.resources.shape import shape
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Problem

_WITH_STATUS = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class FieldValidation:
    """What to do about fields that nobody knows."""

    mode: str
    duplicates: tuple[str, ...] = ()
    is_patch: bool = False

    @classmethod
    def of(cls, request: Request, duplicates: list[str]) -> FieldValidation:
        """As the request asks; Warn is the default, as in Kubernetes."""
        mode = request.query.get("fieldValidation") or "Warn"
        return cls(mode, tuple(duplicates), request.method == "PATCH")

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
    verdict = served.judge(obj, old)
    if verdict.malformed:
        raise malformed(served.resource, obj, verdict.malformed, is_patch=validation.is_patch)
    notes = validation.settle([_quoted(problem) for problem in verdict.unknown])
    _refuse(served, obj, [*metadata_problems(served, obj), *verdict.errors])
    return verdict.obj, [*notes, *verdict.warnings]


def update(
    served: Served, obj: Object, old: Object, validation: FieldValidation, status_only: bool
) -> tuple[Object, list[str]]:
    """As `create`, for a new version of `old`.

    What was stored although it is invalid can still get a status and lose a finalizer.
    """
    if not status_only and spec_differs(obj, old):
        return create(served, obj, validation, old)
    # Of what else a client sends along with a status nothing is kept.
    found = served.decoded({k: obj[k] for k in _WITH_STATUS if k in obj} if status_only else obj)
    if found.malformed:
        raise malformed(served.resource, obj, found.malformed, is_patch=validation.is_patch)
    problems = metadata_problems(served, obj)
    if status_only:
        problems += [problem for problem in found.errors if problem.path[0] == "status"]
        problems += served.status_rules(found.obj)
    _refuse(served, obj, problems)
    return found.obj, validation.settle([_quoted(problem) for problem in found.unknown])


def applied(served: Served, obj: Object) -> Object:
    """A configuration to apply, which need not be whole; raises BadRequest."""
    found = served.decoded(served.stored(obj))
    if found.malformed:
        raise malformed(served.resource, obj, found.malformed)
    return obj


def checked(value: object, definition: str) -> Object:
    """What a subresource is sent, by one of the official definitions; raises BadRequest."""
    if not isinstance(value, dict):
        raise bad_request(f"the {definition} is not an object")
    found = shape(value, definition)
    if problems := [*found.malformed, *found.errors]:
        listed = ", ".join(problem.detail for problem in problems)
        raise bad_request(f"it cannot be handled as a {definition}: {listed}")
    return found.obj


def _quoted(problem: Problem) -> str:
    hint = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
    return f'"{problem.where}"{hint}'


def _refuse(served: Served, obj: Object, problems: Sequence[Problem]) -> None:
    if problems:
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        found = causes(problems[:MAX_CAUSES])
        if len(problems) > MAX_CAUSES:
            found.append(Cause("", f"and {len(problems) - MAX_CAUSES} more problems"))
        raise invalid(served.kind, served.resource.group, shortened(str(name)), found)
