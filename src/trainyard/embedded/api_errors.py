"""The refusals of the embedded API server, in Kubernetes' own words.

The classes are those that the client raises (`trainyard.kube.errors`), so that code which works
on the registry in process and code which comes in over HTTP handle the same exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from trainyard.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
)
from trainyard.kube.resources import Resource
from trainyard.schema.problems import REQUIRED, Problem

E = TypeVar("E", bound=ApiError)


class StatusCause(NamedTuple):
    """One problem of a refused object: JSON path without the leading dot, and what is wrong."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def _object_error(kind: type[E], code: int, resource: str, name: str, message: str) -> E:
    plural, _, group = resource.partition(".")
    details = {"name": name, "group": group, "kind": plural}
    return kind(message, code=code, reason=kind.__name__, details=details)


def not_found(resource: str, name: str) -> NotFound:
    """No object of this name."""
    return _object_error(NotFound, 404, resource, name, f'{resource} "{name}" not found')


def no_such_path(what: str = "the server could not find the requested resource") -> NotFound:
    """The URL names nothing that is served."""
    return NotFound(what, code=404, reason="NotFound")


def already_exists(resource: str, name: str) -> AlreadyExists:
    """The name is taken."""
    return _object_error(AlreadyExists, 409, resource, name, f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, why: str = "") -> Conflict:
    """A precondition (resourceVersion or UID) does not hold."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    text = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return _object_error(Conflict, 409, resource, name, text)


def apply_conflict(status_causes: Sequence[StatusCause]) -> Conflict:
    """Others own what a server-side apply would change."""
    count = f"{len(status_causes)} conflict{'s' if len(status_causes) > 1 else ''}"
    if len(status_causes) == 1:
        listed = f"{status_causes[0].message}: {status_causes[0].field}"
    else:
        by_manager: dict[str, list[str]] = {}
        for each in status_causes:
            by_manager.setdefault(each.message.replace("conflict", "conflicts", 1), []).append(
                f"- {each.field}"
            )
        listed = "\n".join("\n".join([f"{who}:", *fields]) for who, fields in by_manager.items())
    return Conflict(
        f"Apply failed with {count}: {listed}",
        code=409,
        reason="Conflict",
        details={"causes": [each._asdict() for each in status_causes]},
    )


def forbidden(resource: str, name: str, why: str) -> Forbidden:
    """The object is well-formed and still refused."""
    return _object_error(Forbidden, 403, resource, name, f'{resource} "{name}" is forbidden: {why}')


def status_causes(problems: Sequence[Problem]) -> list[StatusCause]:
    """The problems of an object as causes of a Status."""
    found = []
    for problem in problems:
        detail = problem.detail.removeprefix(problem.where + ": ")
        if problem.message == REQUIRED:
            found.append(StatusCause(problem.where, "Required value", "FieldValueRequired"))
        else:
            found.append(StatusCause(problem.where, f"Invalid value: {detail}"))
    return found


def malformed(
    resource: Resource,
    obj: Mapping[str, Any],
    problems: Sequence[Problem],
    *,
    is_patch: bool = False,
) -> Invalid:
    """The object is not of the types that its kind has.

    Kubernetes answers 400, and 422 where a patch makes it so; both name the fields here.
    """
    if is_patch:
        metadata = obj.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return invalid(resource.kind, resource.group, str(name), status_causes(problems))
    refusal = bad_request(
        f'{resource.kind} in version "{resource.api_version}" cannot be handled as a '
        f"{resource.kind}: " + ", ".join(problem.detail for problem in problems)
    )
    listed = [StatusCause(p.where, p.message, "FieldValueTypeInvalid")._asdict() for p in problems]
    refusal.details = {"group": resource.group, "kind": resource.kind, "causes": listed}
    return refusal


def invalid(kind: str, group: str, name: str, status_causes: Sequence[StatusCause]) -> Invalid:
    """The object breaks rules; every one of them is named."""
    texts = [": ".join(filter(None, cause[:2])) for cause in status_causes]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: dict[str, Any] = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [cause._asdict() for cause in status_causes],
    }
    qualified = f"{kind}.{group}" if group else kind
    return Invalid(
        f'{qualified} "{name}" is invalid: {listed}', code=422, reason="Invalid", details=details
    )


def bad_request(message: str) -> Invalid:
    """The request itself makes no sense."""
    return Invalid(message, code=400, reason="BadRequest")


def too_large(message: str) -> ApiError:
    """There is more of it than is read."""
    return ApiError(message, code=413, reason="RequestEntityTooLarge")


def expired(asked: int, oldest: int) -> Gone:
    """The watch log no longer reaches back that far."""
    return Gone(f"too old resource version: {asked} ({oldest})", code=410, reason="Expired")


def too_large_version(asked: int, newest: int) -> ServerError:
    """Nothing is as new as that yet."""
    text = f"Too large resource version: {asked}, current: {newest}"
    return ServerError(text, code=504, reason="Timeout")


def method_not_allowed(method: str, resource: str) -> ApiError:
    """The resource is served, but not for this verb."""
    return ApiError(f"{method} is not supported on {resource}", code=405, reason="MethodNotAllowed")


def kind_without_effect(kind: str, api_version: str, instead: str) -> ApiError:
    """The kind is known, but objects of it would change nothing here."""
    what = f"this embedded cluster does nothing with a {kind} ({api_version}), and takes none"
    return ApiError(f"{what}: {instead}", code=405, reason="MethodNotAllowed")


def not_acceptable(offered: Sequence[str]) -> ApiError:
    """The client takes none of the formats that are spoken here."""
    text = f"only the following media types are accepted: {', '.join(offered)}"
    return ApiError(text, code=406, reason="NotAcceptable")


def unsupported_media_type(found: str, supported: Sequence[str]) -> ApiError:
    """The body is in a format that is not spoken here."""
    return ApiError(
        f"the body of the request was in an unknown format ({found}); "
        f"accepted media types include: {', '.join(supported)}",
        code=415,
        reason="UnsupportedMediaType",
    )


def internal(message: str) -> ApiError:
    """The server could not do it, through no fault of the request."""
    return ApiError(message, code=500, reason="InternalError")


def insufficient_storage(message: str) -> ApiError:
    """There is no room for it."""
    return ApiError(message, code=507, reason="InsufficientStorage")


def error_status(error: ApiError) -> dict[str, Any]:
    """The Kubernetes Status object for `error`."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason or "Unknown",
    }
    if error.details or error.code == 404:  # kubectl looks into a 404's without a check
        status["details"] = {key: value for key, value in error.details.items() if value}
    return {**status, "code": error.code}
