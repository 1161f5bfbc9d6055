"""What can go wrong when speaking to a Kubernetes API server."""

from __future__ import annotations

from typing import Any

import orjson

from trainyard.schema.errors import TrainyardError


class KubeError(TrainyardError):
    """The root of everything this client raises."""


class Unreachable(KubeError):
    """No answer arrived. A write may or may not have been applied."""


class ConfigError(KubeError):
    """A kubeconfig or its credentials cannot be used."""


class StreamError(KubeError):
    """A stream of events or log lines ended in the middle or held something else."""


class ApiError(KubeError):
    """The server refused: `code` is the HTTP status, `reason` the Kubernetes reason."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 500,
        reason: str = "",
        retry_after: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after
        self.details = details or {}


class Invalid(ApiError):
    """400, 422: The object was refused as malformed or against a rule."""


class Unauthorized(ApiError):
    """401: The credentials were not accepted."""


class Forbidden(ApiError):
    """403: Not permitted: by RBAC, a quota or an admission plugin."""


class NotFound(ApiError):
    """404: The object, or the whole resource, does not exist."""


class Conflict(ApiError):
    """409: The object has moved on since it was read."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Gone(ApiError):
    """410: The resourceVersion is too old to watch from; list again."""


class TooManyRequests(ApiError):
    """429: The server asks to come back later, after `retry_after` seconds if it says so."""


class ServerError(ApiError):
    """5xx: The server failed on its side."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_of_status(
    status: dict[str, Any], what: str, *, code: int | None = None, retry_after: float | None = None
) -> ApiError:
    """The exception for a Kubernetes Status object; `what` says what was attempted."""
    code = int(status.get("code") or code or 500)
    reason = str(status.get("reason") or "")
    details = status.get("details") or {}
    kind = _BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason == "Expired":
        kind = Gone
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    text = status.get("message") or f"HTTP {code}"
    return kind(
        f"cannot {what}: {text}",
        code=code,
        reason=reason,
        retry_after=retry_after,
        details=details,
    )


def error_of_response(
    code: int, body: bytes, what: str, *, retry_after: float | None = None
) -> ApiError:
    """The exception for an HTTP answer that is not a success."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:500].decode("utf-8", "replace").strip()
        status = {"message": text or f"HTTP {code}"}
        return error_of_status(status, what, code=code, retry_after=retry_after)
    return error_of_status(status, what, code=code, retry_after=retry_after)
