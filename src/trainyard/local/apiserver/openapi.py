"""OpenAPI documents: what `kubectl explain` shows, and where kubectl learns about validation.

kubectl looks for a `patch` operation with a `fieldValidation` parameter; finding it, it leaves
strictness to the server.
"""

from __future__ import annotations

from functools import cache

from trainyard.local.apiserver.formats import json_response
from trainyard.local.apiserver.messages import Request, Response
from trainyard.local.failures import no_such_path
from trainyard.local.resources.resource import Object, Served, openapi
from trainyard.local.resources.table import Resources

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_EMPTY = b"\x0a\x032.0"
"""A document that says only `swagger: "2.0"`: all that kubectl 1.27 and 1.28 need of it."""
_INFO = {"title": "trainyard", "version": "v1"}
_STRING = {"type": "string", "uniqueItems": True}


def respond(request: Request, parts: list[str], resources: Resources) -> Response:
    """The answer for `/openapi/v2`, `/openapi/v3` and `/openapi/v3/<group version>`."""
    if parts[1:] == ["v2"]:
        if "protobuf" in request.headers.get("accept", ""):
            return Response(200, _V2_EMPTY, _V2_PROTOBUF)
        empty: Object = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
        return json_response(200, empty)
    if parts[1:2] != ["v3"]:
        raise no_such_path()
    if len(parts) == 2:
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=trainyard"}
            for path in _paths(resources)
        }
        return json_response(200, {"paths": paths})
    path = "/".join(parts[2:])
    if path not in _paths(resources):
        raise no_such_path()
    return Response(200, _document(path, resources))


@cache
def _paths(resources: Resources) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_path(row) for row in resources))


def _path(row: Served) -> str:
    return row.resource.root.removeprefix("/")


@cache
def _document(path: str, resources: Resources) -> bytes:
    import orjson

    is_official = any(row.definition for row in resources if _path(row) == path)
    components: Object = _official() if is_official else {}
    paths: Object = {}
    for row in resources:
        if _path(row) != path:
            continue
        name = _component_name(row)
        components[name] = {**row.schema(), "x-kubernetes-group-version-kind": [_identity(row)]}
        namespaced, plural = row.resource.namespaced, row.resource.plural
        prefix = f"/{path}/namespaces/{{namespace}}" if namespaced else f"/{path}"
        places = [_in_path("namespace")] if namespaced else []
        post = {"post": _operation(row, "post", name)}
        paths[f"{prefix}/{plural}"] = {"parameters": places, **post}
        verbs = {verb: _operation(row, verb, name) for verb in ("get", "put", "patch")}
        named = {"parameters": [*places, _in_path("name")], **verbs}
        paths[f"{prefix}/{plural}/{{name}}"] = named
    head = {"openapi": "3.0.0", "info": _INFO}
    return orjson.dumps({**head, "paths": paths, "components": {"schemas": components}})


def _component_name(row: Served) -> str:
    group, version = row.resource.group, row.resource.version
    prefix = ".".join(reversed(group.split("."))) if group else "io.k8s.api.core"
    return f"{prefix}.{version}.{row.kind}"


def _identity(row: Served) -> Object:
    return {"group": row.resource.group, "version": row.resource.version, "kind": row.kind}


def _official() -> Object:
    """The official schemas that those of the kinds refer to."""
    from trainyard.schema import core

    return {
        name: openapi(schema)
        for name, schema in core.definitions("served").items()
        if not isinstance(schema, str) and name not in core.CORE_KINDS
    }


def _in_path(name: str) -> Object:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _operation(row: Served, verb: str, component: str) -> Object:
    reference = {"schema": {"$ref": f"#/components/schemas/{component}"}}
    parameters = [
        {"name": name, "in": "query", "schema": _STRING}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    takes: Object = {}
    if verb in ("post", "put"):
        takes["requestBody"] = {"required": True, "content": {"application/json": reference}}
    return {
        **takes,
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _identity(row),
        "parameters": [] if verb == "get" else parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": reference}}},
    }
