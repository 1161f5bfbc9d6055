"""CreateOptions, UpdateOptions and PatchOptions, from the query of a request."""

from __future__ import annotations

from trainyard.embedded.api_errors import StatusCause, invalid
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.embedded.apiserver.requests.request_limits import shortened

_GROUP = "meta.k8s.io"
_MAX_MANAGER_BYTES = 128
_DRY_RUN = "All"
FIELD_VALIDATION = ("Strict", "Warn", "Ignore")


def check_write(request: Request, kind: str, *, applies: bool = False) -> None:
    """Raises Invalid for wrong options of the kind `kind`."""
    causes = dry_run_causes(request.queries)
    manager = request.query.get("fieldManager", "")
    if len(manager.encode("utf-8", "replace")) > _MAX_MANAGER_BYTES:
        causes.append(
            StatusCause("fieldManager", f"Too long: may not be longer than {_MAX_MANAGER_BYTES}")
        )
    if not manager.isprintable():
        text = f"Invalid value: {shortened(manager)!r}: should only contain printable characters"
        causes.append(StatusCause("fieldManager", text))
    if (mode := request.query.get("fieldValidation", "")) not in ("", *FIELD_VALIDATION):
        text = f"Unsupported value: {shortened(mode)!r}: supported values: "
        causes.append(StatusCause("fieldValidation", text + ", ".join(FIELD_VALIDATION)))
    if "force" in request.query and request.method == "PATCH" and not applies:
        causes.append(StatusCause("force", "Forbidden: may not be specified for non-apply patch"))
    refuse_if_any(kind, causes)


def manager(request: Request) -> str:
    """The field manager: as the request says, else the program of the user agent."""
    if named := request.query.get("fieldManager"):
        return named
    program = request.headers.get("user-agent", "").partition("/")[0]
    if not program.isprintable():
        program = "".join(filter(str.isprintable, program))
    return program.encode()[:_MAX_MANAGER_BYTES].decode(errors="ignore") or "unknown"


def dry_run_causes(queries: list[tuple[str, str]]) -> list[StatusCause]:
    """What is wrong with `dryRun` in a query."""
    return [
        StatusCause(
            "dryRun", f"Unsupported value: {shortened(value)!r}: supported values: {_DRY_RUN}"
        )
        for key, value in queries
        if key == "dryRun" and value != _DRY_RUN
    ]


def refuse_if_any(kind: str, causes: list[StatusCause]) -> None:
    """Raises Invalid if there is a cause."""
    if causes:
        raise invalid(kind, _GROUP, "", causes)


def is_dry_run(request: Request) -> bool:
    """Whether nothing is to be stored."""
    return request.query.get("dryRun") == _DRY_RUN
