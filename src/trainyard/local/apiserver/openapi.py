"""OpenAPI documents: what `kubectl explain` shows, and where kubectl learns about validation.

kubectl looks for a `patch` operation with a `fieldValidation` parameter; finding it, it leaves
strictness to the server.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from trainyard.local.apiserver import schemas
from trainyard.local.apiserver.formats import json_response
from trainyard.local.apiserver.http import Request, Response
from trainyard.local.failures import no_such_path
from trainyard.local.resources.served import SERVED, Served

Object = dict[str, Any]

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_EMPTY = b"\x0a\x032.0"
"""A document that says only `swagger: "2.0"`: all that kubectl 1.27 and 1.28 need of it."""


def respond(request: Request, parts: list[str]) -> Response:
    """The answer for `/openapi/v2`, `/openapi/v3` and `/openapi/v3/<group version>`."""
    if parts[1:] == ["v2"]:
        if "protobuf" in request.headers.get("accept", ""):
            return Response(200, _V2_EMPTY, _V2_PROTOBUF)
        info = {"title": "trainyard", "version": "v1"}
        empty: Object = {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
        return json_response(200, empty)
    if parts[1:2] != ["v3"]:
        raise no_such_path()
    if len(parts) == 2:
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=trainyard"} for path in _paths()
        }
        return json_response(200, {"paths": paths})
    path = "/".join(parts[2:])
    if path not in _paths():
        raise no_such_path()
    return Response(200, _document(path))


@cache
def _paths() -> tuple[str, ...]:
    return tuple(dict.fromkeys(_path(row) for row in SERVED.values()))


def _path(row: Served) -> str:
    return f"apis/{row.group}/{row.version}" if row.group else f"api/{row.version}"


@cache
def _document(path: str) -> bytes:
    import orjson

    rows = [row for row in SERVED.values() if _path(row) == path]
    components: Object = schemas.core_components() if path == "api/v1" else {}
    paths: Object = {}
    for row in rows:
        name = _component_name(row)
        components[name] = _component(row)
        prefix = f"/{path}/namespaces/{{namespace}}" if row.namespaced else f"/{path}"
        paths[f"{prefix}/{row.plural}"] = {"post": _operation(row, "post", name)}
        paths[f"{prefix}/{row.plural}/{{name}}"] = {
            verb: _operation(row, verb, name) for verb in ("get", "put", "patch")
        }
    return orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": {"title": "trainyard", "version": "v1"},
            "paths": paths,
            "components": {"schemas": components},
        }
    )


def _component_name(row: Served) -> str:
    group = ".".join(reversed(row.group.split("."))) if row.group else "io.k8s.api.core"
    return f"{group}.{row.version}.{row.kind}"


def _component(row: Served) -> Object:
    schema = schemas.published(row)
    gvk = {"group": row.group, "version": row.version, "kind": row.kind}
    return {**schema, "x-kubernetes-group-version-kind": [gvk]}


def _operation(row: Served, verb: str, component: str) -> Object:
    reference = {"schema": {"$ref": f"#/components/schemas/{component}"}}
    parameters = [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "string", "uniqueItems": True},
        }
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    return {
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": {
            "group": row.group,
            "version": row.version,
            "kind": row.kind,
        },
        "parameters": [] if verb == "get" else parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": reference}}},
    }
