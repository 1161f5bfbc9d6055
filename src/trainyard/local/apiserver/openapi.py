"""OpenAPI documents: what `kubectl explain` shows, and where kubectl learns about validation.

kubectl looks for a `patch` operation with a `fieldValidation` parameter; finding it, it leaves
strictness to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainyard.local.apiserver import swagger
from trainyard.local.apiserver.formats import json_response
from trainyard.local.apiserver.messages import Request, Response
from trainyard.local.apiserver.patches import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
)
from trainyard.local.failures import no_such_path
from trainyard.local.resources.resource import Object, Served, openapi, reference
from trainyard.local.resources.table import Resources

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_EMPTY = b"\x0a\x032.0"
"""A document that says only `swagger: "2.0"`: all that kubectl 1.27 and 1.28 need of it."""
_INFO = {"title": "trainyard", "version": "v1"}
_LIST = "List"
_STRING, _NUMBER, _FLAG = ({"type": each} for each in ("string", "integer", "boolean"))
_LIST_META = {
    "type": "object",
    "properties": {
        "continue": {"type": "string", "description": "Asks for the rest, where there is more"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
    },
}
_SELECTED = {
    "labelSelector": (_STRING, "Restricts the list of returned objects by their labels"),
    "fieldSelector": (_STRING, "Restricts the list of returned objects by their fields"),
    "limit": (_NUMBER, "How many to return at most"),
    "continue": (_STRING, "Where an earlier answer broke off"),
    "resourceVersion": (_STRING, "How old an answer may be"),
    "resourceVersionMatch": (_STRING, "How resourceVersion is meant: Exact or NotOlderThan"),
    "timeoutSeconds": (_NUMBER, "How long a watch lasts"),
}
_WRITE = {
    "dryRun": (_STRING, "All: do everything but store it"),
    "fieldManager": (_STRING, "Who owns the fields that are set"),
    "fieldValidation": (_STRING, "Unknown and duplicate fields: Ignore, Warn or Strict"),
}
_DELETE = {
    "dryRun": _WRITE["dryRun"],
    "gracePeriodSeconds": (_NUMBER, "How long a pod may take to stop"),
    "propagationPolicy": (_STRING, "What is owned by it: Orphan, Background or Foreground"),
}
_OPTIONS: Mapping[str, Mapping[str, tuple[Object, str]]] = {
    "list": {
        **_SELECTED,
        "watch": (_FLAG, "Watch for changes to the described resources"),
        "allowWatchBookmarks": (_FLAG, "Have a watch tell how far it has come"),
        "sendInitialEvents": (_FLAG, "Have a watch begin with what there is"),
    },
    "create": _WRITE,
    "update": _WRITE,
    "patch": {**_WRITE, "force": (_FLAG, "Take fields from other owners; apply patches only")},
    "delete": _DELETE,
    "deletecollection": {**_SELECTED, **_DELETE},
}
"""The parameters in the query, by action."""
_ACTIONS = {"create": "post", "update": "put"}
"""What OpenAPI calls an action, where that is another word."""
_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def respond(request: Request, parts: list[str], resources: Resources) -> Response:
    """The answer for `/openapi/v2`, `/openapi/v3` and `/openapi/v3/<group version>`."""
    if parts[1:] == ["v2"]:
        if "protobuf" in request.headers.get("accept", ""):
            return Response(200, _V2_EMPTY, _V2_PROTOBUF)
        return Response(200, _second(resources))
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

    return orjson.dumps(_described(path, resources))


@cache
def _second(resources: Resources) -> bytes:
    """All of it in one document of version 2: some clients build themselves from that."""
    import orjson

    documents = [_described(path, resources) for path in _paths(resources)]
    return orjson.dumps(swagger.document(_INFO, documents))


def _described(path: str, resources: Resources) -> Object:
    is_official = any(row.definition for row in resources if _path(row) == path)
    components: Object = _official() if is_official else {}
    paths: Object = {}
    for row in resources:
        if _path(row) == path:
            name = _component_name(row)
            components[name] = {**row.schema(), "x-kubernetes-group-version-kind": [_identity(row)]}
            components[name + _LIST] = _list_of(row)
            paths |= _paths_of(row)
    head = {"openapi": "3.0.0", "info": _INFO}
    return {**head, "paths": paths, "components": {"schemas": components}}


def _paths_of(row: Served) -> Object:
    """Where objects are listed, where they are made and where each of them is."""
    plural, root = row.resource.plural, f"/{_path(row)}"
    places: list[Object] = []
    paths: Object = {}
    if row.resource.namespaced:
        paths[f"{root}/{plural}"] = {"parameters": [], **_operations(row, {"get": "list"})}
        places = [_in_path("namespace")]
        root += "/namespaces/{namespace}"
    of_all = {"get": "list", "post": "create", "delete": "deletecollection"}
    paths[f"{root}/{plural}"] = {"parameters": places, **_operations(row, of_all)}
    of_one = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
    named = {"parameters": [*places, _in_path("name")], **_operations(row, of_one)}
    paths[f"{root}/{plural}/{{name}}"] = named
    return paths


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


def _list_of(row: Served) -> Object:
    name, plural = _component_name(row), row.resource.plural
    text = {"type": "string"}
    items = {"type": "array", "items": reference(name), "description": f"List of {plural}"}
    return {
        "description": f"{row.kind}List is a list of {row.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {"apiVersion": text, "kind": text, "metadata": _LIST_META, "items": items},
        "x-kubernetes-group-version-kind": [{**_identity(row), "kind": f"{row.kind}List"}],
    }


def _patch_schema(media_type: str) -> Object:
    changes: Object = {"type": "array", "items": {"type": "object"}}
    return changes if media_type == JSON_PATCH else {"type": "object"}


def _operations(row: Served, actions: Mapping[str, str]) -> Object:
    return {
        method: _operation(row, method, action)
        for method, action in actions.items()
        if action in row.verbs
    }


def _operation(row: Served, method: str, action: str) -> Object:
    component = _component_name(row)
    content = {"schema": reference(component)}
    takes: Object = {}
    if method in ("post", "put"):
        takes["requestBody"] = {"required": True, "content": {"application/json": content}}
    elif method == "patch":
        kinds = {each: {"schema": _patch_schema(each)} for each in _PATCHES}
        if not row.custom:
            kinds[STRATEGIC_MERGE_PATCH] = {"schema": {"type": "object"}}
        takes["requestBody"] = {"required": True, "content": kinds}
    if action == "list":
        content = {"schema": reference(component + _LIST)}
    elif method == "delete":
        content = {"schema": {"type": "object"}}
    return {
        **takes,
        "x-kubernetes-action": _ACTIONS.get(action, action),
        "x-kubernetes-group-version-kind": _identity(row),
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": schema}
            for name, (schema, text) in _OPTIONS.get(action, {}).items()
        ],
        "responses": {"200": {"description": "OK", "content": {"application/json": content}}},
    }
