"""Admission: checks metadata and the rules of the resource before an object is stored.

Field validation is Kubernetes' own: Strict refuses unknown and duplicate fields, Warn drops them
with a warning, Ignore drops them.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.embedded.api_errors import (
    StatusCause,
    bad_request,
    invalid,
    malformed,
    status_causes,
)
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.embedded.apiserver.patch.patch_formats import APPLY_PATCH
from trainyard.embedded.apiserver.requests.request_limits import MAX_CAUSES, shortened
from trainyard.embedded.object_metadata import spec_differs
from trainyard.embedded.resources.decoding import decode
from trainyard.embedded.resources.metadata_rules import metadata_problems
from trainyard.embedded.resources.resource import Object, Served
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import REQUIRED, Problem

_WITH_STATUS = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class FieldValidation:
    """What to do about unknown and duplicate fields."""

    mode: str
    found: Sequence[str] = ()
    """Notes from reading the body: duplicate keys."""
    is_patch: bool = False
    """A patch, and not a server-side apply."""

    @classmethod
    def from_request(cls, request: Request, found: Sequence[str]) -> FieldValidation:
        """From the query `fieldValidation`; Warn is the default, as in Kubernetes since 1.25."""
        mode = request.query.get("fieldValidation") or "Warn"
        is_patch = request.method == "PATCH" and request.media_type != APPLY_PATCH
        return cls(mode, found, is_patch)

    def check_unknown_fields(
        self, served: Served, obj: Object, unknown: Sequence[Problem]
    ) -> list[str]:
        """Refuse the request, or return the warnings about unknown and duplicate fields."""
        notes = [*self.found, *(f"unknown field {_quoted(problem)}" for problem in unknown)]
        if notes and self.mode == "Strict":
            message = f"strict decoding error: {', '.join(notes[:MAX_CAUSES])}"
            raise (
                served.refused(obj, StatusCause("patch", message))
                if self.is_patch
                else bad_request(message)
            )
        return notes if self.mode == "Warn" else []


def admit_new(
    served: Served, obj: Object, validation: FieldValidation, old: Object | None = None
) -> tuple[Object, list[str]]:
    """The object as it will be stored, and warnings; raises Invalid with every problem."""
    verdict = served.validate(obj, old)
    if verdict.malformed:
        raise malformed(served.resource, obj, verdict.malformed, is_patch=validation.is_patch)
    notes = validation.check_unknown_fields(served, obj, verdict.unknown)
    _raise_if_any(served, obj, [*metadata_problems(served, obj), *verdict.errors])
    return verdict.obj, [*notes, *verdict.warnings]


def admit_update(
    served: Served, obj: Object, old: Object, validation: FieldValidation, status_only: bool
) -> tuple[Object, list[str]]:
    """As `admit_new`, for a new version of `old`.

    An object that was stored although it is invalid can still get a status or lose a finalizer.
    """
    if not status_only and spec_differs(obj, old):
        return admit_new(served, obj, validation, old)
    # Of what else a client sends along with a status nothing is kept.
    found = served.decode({k: obj[k] for k in _WITH_STATUS if k in obj} if status_only else obj)
    if found.malformed:
        raise malformed(served.resource, obj, found.malformed, is_patch=validation.is_patch)
    problems = metadata_problems(served, obj)
    if status_only:
        problems += [problem for problem in found.errors if problem.path[0] == "status"]
        problems += served.status_rules(found.obj)
    _raise_if_any(served, obj, problems)
    return found.obj, validation.check_unknown_fields(served, obj, found.unknown)


def check_applied(served: Served, obj: Object) -> Object:
    """Check a configuration for server-side apply, which need not be complete; raises BadRequest.

    An unknown field is refused in every mode of field validation, since nobody could own it.
    """
    found = served.decode(served.from_view(obj))
    if found.malformed:
        raise malformed(served.resource, obj, found.malformed)
    pruned, unknown = served.prune(found.obj)
    wrong = [f".{each.where}: field not declared in schema" for each in (*found.unknown, *unknown)]
    if served.custom:
        wrong += [f".{each.detail}" for each in found.errors if each.message != REQUIRED]
    if wrong:
        listed = ", ".join(wrong)
        metadata, version = obj["metadata"], served.resource.api_version
        what = f"{metadata.get('namespace', '')}/{metadata['name']}; {version}, Kind={served.kind}"
        raise bad_request(f"failed to create typed patch object ({what}): {listed}")
    return {**pruned, "metadata": obj["metadata"]} if served.custom else obj


def decode_as(value: object, definition: str, *, is_patch: bool = False) -> Object:
    """Decode the body of a subresource by one of the official definitions.

    Raises BadRequest, or Invalid where the value is the result of a patch.
    """
    if not isinstance(value, dict):
        raise bad_request(f"the {definition} is not an object")
    found = decode(value, definition)
    if problems := [*found.malformed, *found.errors]:
        listed = ", ".join(problem.detail for problem in problems)
        message = f"it cannot be handled as a {definition}: {listed}"
        raise (
            invalid(definition, "", "", [StatusCause("patch", message)])
            if is_patch
            else bad_request(message)
        )
    return found.obj


def _quoted(problem: Problem) -> str:
    hint = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
    return f'"{problem.where}"{hint}'


def _raise_if_any(served: Served, obj: Object, problems: Sequence[Problem]) -> None:
    if problems:
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        found = status_causes(problems[:MAX_CAUSES])
        if len(problems) > MAX_CAUSES:
            found.append(StatusCause("", f"and {len(problems) - MAX_CAUSES} more problems"))
        raise invalid(served.kind, served.resource.group, shortened(str(name)), found)
