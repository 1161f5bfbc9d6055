"""How objects go over the wire: negotiated answers, Tables, Status objects, request bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trainyard.kube.errors import ApiError
from trainyard.local.apiserver.http import Request, Response, media_types
from trainyard.local.failures import bad_request, status_of, unsupported_media_type
from trainyard.local.resources.resource import Served
from trainyard.local.storage.journal import Entry

Object = dict[str, Any]
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_BODY_TYPES = (JSON, YAML, PROTOBUF)


def table_parameters(request: Request) -> Mapping[str, str] | None:
    """The parameters of the Table that the client prefers, or None for plain objects."""
    accept = request.headers.get("accept", "")
    if "as=Table" not in accept:
        return None
    for kind, parameters in media_types(accept):
        if kind == JSON:
            return parameters if parameters.get("as") == "Table" else None
    return None


def include_objects(request: Request) -> str:
    """How much of each object a Table's rows carry."""
    return request.query.get("includeObject") or "Metadata"


def json_response(
    status: int, value: Any, warnings: Sequence[str] = (), content_type: str = JSON
) -> Response:
    """An answer whose body is `value`."""
    return Response(status, orjson.dumps(value), content_type, warning_headers(warnings))


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Warning headers as kubectl prints them (RFC 7234, code 299)."""
    clean = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
    return [("Warning", f'299 - "{" ".join(text.split())}"') for text in clean]


def error_response(error: ApiError) -> Response:
    """The Status object of a refusal."""
    response = json_response(error.code, status_of(error))
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
) -> Response:
    """One object, or the Table with its row."""
    if table_parameters(request) is None:
        return json_response(status, obj, warnings)
    from trainyard.local.apiserver import tables

    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    table = tables.render(served, [obj], metadata, include=include_objects(request))
    return json_response(status, table, warnings)


def list_response(
    request: Request, served: Served, entries: Sequence[Entry], metadata: Object
) -> Response:
    """A collection; plain ones are put together from the stored JSON, without encoding."""
    if table_parameters(request) is not None:
        from trainyard.local.apiserver import tables

        objects = [entry.object for entry in entries]
        table = tables.render(served, objects, metadata, include=include_objects(request))
        return json_response(200, table)
    head = orjson.dumps(
        {
            "kind": f"{served.kind}List",
            "apiVersion": served.resource.api_version,
            "metadata": metadata,
        }
    )
    body = head[:-1] + b',"items":[' + b",".join([entry.raw for entry in entries]) + b"]}"
    return Response(200, body)


def success_status(served: Served, obj: Object) -> Response:
    """What a completed deletion answers."""
    details = {
        "name": obj["metadata"]["name"],
        "group": served.resource.group,
        "kind": served.resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    return json_response(
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        },
    )


def body_object(request: Request, served: Served | None = None) -> tuple[Object, list[str]]:
    """The object in a request's body, and the paths of keys that it has twice.

    JSON, YAML, and the protobuf that kubectl ≥ 1.32 sends for a few built-in kinds, those of
    `served` among them.
    """
    content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    duplicates: list[str] = []
    if content_type == PROTOBUF or request.body[:4] == b"k8s\0":
        from trainyard.local.apiserver.protobuf import decode

        value: Any = decode(request.body, served)
    elif content_type in (JSON, ""):
        value = parse_json(request.body)
        if request.query.get("fieldValidation") in ("Strict", "Warn"):
            duplicates = duplicate_keys(request.body)
    elif content_type == YAML:
        value = parse_yaml(request.body)
    else:
        raise unsupported_media_type(content_type, _BODY_TYPES)
    if not isinstance(value, dict):
        raise bad_request("the body of the request is not an object")
    return value, duplicates


def parse_json(body: bytes) -> Any:
    """JSON, or a refusal that says where it breaks off."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from error


def parse_yaml(body: bytes) -> Any:
    """YAML, of which JSON is a part."""
    if body[:1] == b"{":
        return parse_json(body)
    import yaml

    try:
        return yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from error


def duplicate_keys(body: bytes) -> list[str]:
    """Keys that occur twice in one object of a JSON text, which orjson cannot see."""
    import json

    found: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> Object:
        result: Object = {}
        for key, value in pairs:
            if key in result:
                found.append(key)
            result[key] = value
        return result

    json.loads(body, object_pairs_hook=check)
    return found
