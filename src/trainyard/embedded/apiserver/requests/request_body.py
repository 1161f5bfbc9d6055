"""Reads the body of a request: JSON, YAML, or the protobuf of kubectl's typed clients."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import orjson

from trainyard.embedded.api_errors import bad_request, too_large, unsupported_media_type
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.embedded.apiserver.requests import request_limits
from trainyard.embedded.apiserver.requests.representation import JSON, YAML
from trainyard.embedded.resources.resource import Object, Served
from trainyard.schema.problems import Path, error

PROTOBUF = "application/vnd.kubernetes.protobuf"
_BODY_TYPES = (JSON, YAML, PROTOBUF)


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
    from trainyard.schema import yaml_parser

    try:
        documents = list(islice(yaml_parser.parse(body.decode("utf-8-sig")), 2))
    except UnicodeDecodeError as error:
        raise bad_request("the body of the request is not UTF-8 text") from error
    if len(documents) != 1:
        raise bad_request("the body of the request is not one YAML document")
    notes = []
    for mistake in documents[0].mistakes:
        if mistake.message.startswith(yaml_parser.DUPLICATE):
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
