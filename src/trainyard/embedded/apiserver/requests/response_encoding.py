"""Encodes answers: objects, lists in pages, Status objects, warnings."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import orjson

from trainyard.embedded.api_errors import (
    StatusCause,
    bad_request,
    error_status,
    invalid,
    too_large,
    too_large_version,
    unsupported_media_type,
)
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests import request_limits
from trainyard.embedded.apiserver.requests.representation import (
    JSON,
    YAML,
    negotiate_representation,
)
from trainyard.embedded.resources.resource import Object, Served
from trainyard.embedded.storage.journal import Entry
from trainyard.kube.errors import ApiError
from trainyard.schema.problems import Path, error

PROTOBUF = "application/vnd.kubernetes.protobuf"
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_BODY_TYPES = (JSON, YAML, PROTOBUF)


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
            break  # as kube-apiserver: whoever makes so many mistakes has been told of some
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
        status, representation.shown(served, obj), warnings, representation.content_type
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


def body_object(request: Request, served: Served | None = None) -> tuple[Object, list[str]]:
    """The object in a request's body, and notes on keys that it has twice.

    JSON, YAML, and the protobuf that kubectl ≥ 1.32 sends for a few built-in kinds, those of
    `served` among them.
    """
    content_type = request.media_type.lower()
    notes: list[str] = []
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise unsupported_media_type(
            f"{content_type} in {request_limits.shortened(encoding)}", _BODY_TYPES
        )
    if content_type == PROTOBUF or request.body[:4] == b"k8s\0":
        from trainyard.embedded.apiserver.requests.protobuf_decoding import decode

        value: Any = decode(request.body, served)
    elif content_type in (JSON, ""):
        value = parse_json(request.body)
        notes = duplicate_keys(request.body, value)
    elif content_type == YAML:
        value, notes = parse_yaml(request.body)
    else:
        raise unsupported_media_type(content_type, _BODY_TYPES)
    if not isinstance(value, dict):
        raise bad_request("the body of the request is not an object")
    return value, notes


def parse_json(body: bytes) -> Any:
    """JSON, or a refusal that says where it breaks off."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from error
    request_limits.check_text(body, value)
    return value


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """YAML as kubectl reads it, of which JSON is a part, and notes on keys that it has twice."""
    if body[:1] == b"{":
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(body)
            request_limits.check_text(body, value)
            return value, duplicate_keys(body, value)
    if len(body) > request_limits.MAX_YAML_BYTES:
        raise too_large(f"YAML has at most {request_limits.MAX_YAML_BYTES >> 10} KiB; send JSON")
    from trainyard.schema import yaml_text

    try:
        documents = list(islice(yaml_text.parse(body.decode("utf-8-sig")), 2))
    except UnicodeDecodeError as error:
        raise bad_request("the body of the request is not UTF-8 text") from error
    if len(documents) != 1:
        raise bad_request("the body of the request is not one YAML document")
    notes = []
    for mistake in documents[0].mistakes:
        if mistake.message.startswith(yaml_text.DUPLICATE):
            notes.append(f"line {mistake.line}: {mistake.message}")
            continue
        where = f"line {mistake.line}, column {mistake.column}"
        raise bad_request(f"the body of the request is not YAML: {where}: {mistake.message}")
    request_limits.check_shape(documents[0].data)
    return documents[0].data, notes


def duplicate_keys(body: bytes, value: Any) -> list[str]:
    """Notes on keys that occur twice in one object of a JSON text, of which `value` was read."""
    # A text without escaped colons has as many as what was read of it, unless keys were lost.
    if b"\\u003" not in body and body.count(b":") == orjson.dumps(value).count(b":"):
        return []
    import json

    found: list[str] = []

    def look(part: Any, path: Path) -> None:
        keys = set()
        for key, child in part if type(part) is _Pairs else enumerate(part):
            if type(part) is _Pairs:
                if key in keys:
                    found.append(f'duplicate field "{error((*path, key), "").where}"')
                keys.add(key)
            if isinstance(child, list | _Pairs):
                look(child, (*path, key))

    with suppress(ValueError):  # what only orjson takes has no duplicates to tell of
        read = json.loads(body, object_pairs_hook=_Pairs)
        if isinstance(read, list | _Pairs):
            look(read, ())
    return found


class _Pairs(tuple[tuple[str, Any], ...]):
    """The keys and values of one object, as they were written."""


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
