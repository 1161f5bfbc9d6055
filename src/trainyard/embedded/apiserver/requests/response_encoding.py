"""Encodes answers: objects, lists in pages, Status objects, warnings."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson

from trainyard.embedded.api_errors import (
    StatusCause,
    bad_request,
    error_status,
    invalid,
    too_large_version,
)
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests import request_limits
from trainyard.embedded.apiserver.requests.representation import (
    JSON,
    negotiate_representation,
)
from trainyard.embedded.resources.resource import Object, Served
from trainyard.embedded.storage.journal import Entry
from trainyard.kube.errors import ApiError

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def json_response(
    status: int, value: Any, warnings: Sequence[str] = (), content_type: str = JSON
) -> Response:
    """An answer with the JSON of `value`, and warnings."""
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return Response(status, body, content_type, _warnings(warnings))


def _warnings(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Headers with warnings, as kubectl prints them (RFC 7234, 299)."""
    headers: list[tuple[str, str]] = []
    left = request_limits.MAX_WARNING_CHARACTERS
    for text in warnings:
        clean = "".join(each if each.isprintable() else " " for each in text[:left])
        left -= len(clean)
        if left <= 0:
            break  # as kube-apiserver: the warnings so far are enough
        clean = clean.replace("\\", "\\\\").replace('"', '\\"')
        headers.append(("Warning", f'299 - "{" ".join(clean.split())}"'))
    return headers


def error_response(error: ApiError) -> Response:
    """The Status object of an error."""
    response = json_response(error.code, error_status(error))
    if error.retry_after is not None:
        response.headers.append(("Retry-After", str(max(1, round(error.retry_after)))))
    return response


def object_response(
    request: Request,
    served: Served,
    obj: Object,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
    stored: bytes | None = None,
) -> Response:
    """One object in the representation that the client accepts; `stored`: its JSON, if known."""
    representation = negotiate_representation(request)
    if stored is not None and not representation.kind:
        return Response(status, stored + b"\n", representation.content_type, _warnings(warnings))
    return json_response(
        status, representation.render(served, obj), warnings, representation.content_type
    )


def list_response(
    request: Request, served: Served, entries: Sequence[Entry], metadata: Object
) -> Response:
    """A list; where objects are not transformed, it is joined from their stored JSON."""
    representation = negotiate_representation(request)
    if representation.kind:
        # One by one: the trees of a long list take many times what is shown of them.
        objects = (entry.object for entry in entries)
        return json_response(200, representation.render_list(served, objects, metadata))
    identity = {"kind": f"{served.kind}List", "apiVersion": served.resource.api_version}
    head = orjson.dumps({**identity, "metadata": metadata})
    body = head[:-1] + b',"items":[' + b",".join([entry.raw for entry in entries]) + b"]}\n"
    return Response(200, body, representation.content_type)


def success_status(served: Served, obj: Object) -> Response:
    """The Status of a completed deletion."""
    details = {
        "name": obj["metadata"]["name"],
        "group": served.resource.group,
        "kind": served.resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    return json_response(200, {**SUCCESS, "details": details})


# https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
def list_revision(request: Request, revision: int) -> int:
    """The revision to list: the newest, unless the client asks for an exact one."""
    asked = request_limits.whole_number(request, "resourceVersion") or 0
    request_limits.positive_number(request, "timeoutSeconds")
    _check_match(request, asked)
    if asked > revision:
        raise too_large_version(asked, revision)
    is_exact = request.query.get("resourceVersionMatch") == "Exact"
    return asked if is_exact and "continue" not in request.query else revision


def _check_match(request: Request, asked: int) -> None:
    """Check `resourceVersionMatch`."""
    match = request.query.get("resourceVersionMatch", "")
    if match and "continue" not in request.query:
        wrong = ""
        if match not in ("Exact", "NotOlderThan"):
            wrong = f"Unsupported value: {request_limits.shortened(match)!r}"
        elif not request.query.get("resourceVersion"):
            wrong = (
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        elif match == "Exact" and not asked:
            wrong = "Forbidden: resourceVersionMatch=Exact is forbidden for resourceVersion 0"
        if wrong:
            raise invalid(
                "ListOptions", "meta.k8s.io", "", [StatusCause("resourceVersionMatch", wrong)]
            )


def page(request: Request, entries: Sequence[Entry], metadata: Object) -> Sequence[Entry]:
    """One page of a list.

    Later pages are of the present, but carry the first page's resourceVersion: a watch from
    there replays what changed in between, so that nothing is missed.
    """
    most, token = limit(request), request.query.get("continue", "")
    if token:
        after, revision = _decode_continue(token)
        metadata["resourceVersion"] = str(revision)
        entries = [entry for entry in entries if _sort_key(entry) > after]
    if not most or len(entries) <= most:
        return entries
    shown = entries[:most]
    last = orjson.dumps([*_sort_key(shown[-1]), int(metadata["resourceVersion"])])
    metadata["continue"] = base64.urlsafe_b64encode(last).decode()
    if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
        metadata["remainingItemCount"] = len(entries) - len(shown)
    return shown


def limit(request: Request) -> int:
    """The most objects that the client wants in one answer; 0 for no limit."""
    return request_limits.positive_number(request, "limit")


def _sort_key(entry: Entry) -> tuple[str, str]:
    metadata = entry.object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _decode_continue(token: str) -> tuple[tuple[str, str], int]:
    try:
        namespace, name, revision = orjson.loads(base64.urlsafe_b64decode(token))
        return (str(namespace), str(name)), int(revision)
    except (ValueError, TypeError, OverflowError) as error:
        raise bad_request("the continue token is not one of this server's") from error
