"""OpenAPI documents, for `kubectl explain` and for kubectl's choice of validation.

kubectl looks for a `patch` operation with a `fieldValidation` parameter; finding it, it leaves
strictness to the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trainyard.embedded.api_errors import no_such_path
from trainyard.embedded.apiserver.discovery import openapi_v2
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.patch.patch_formats import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
)
from trainyard.embedded.apiserver.requests.response_encoding import json_response
from trainyard.embedded.resources.resource import (
    SCHEMAS,
    Object,
    Served,
    Subresource,
    openapi,
    reference,
)
from trainyard.embedded.resources.resource_table import Resources

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
_STREAMS = {
    "container": (_STRING, "Which one; that of the only one, or the default"),
    "stdin": (_FLAG, "Pass on what the client sends"),
    "stdout": (_FLAG, "Send its standard output"),
    "stderr": (_FLAG, "Send its standard error"),
    "tty": (_FLAG, "With a terminal"),
}
_OPTIONS_BELOW: Mapping[str, Mapping[str, tuple[Object, str]]] = {
    "log": {
        "container": _STREAMS["container"],
        "follow": (_FLAG, "Go on with what comes"),
        "limitBytes": (_NUMBER, "How much to send at most"),
        "previous": (_FLAG, "That of the container before the present one"),
        "sinceSeconds": (_NUMBER, "Not what is older"),
        "sinceTime": (_STRING, "Not what is older"),
        "tailLines": (_NUMBER, "How many lines from the end to begin with"),
        "timestamps": (_FLAG, "Begin each line with its time"),
    },
    "attach": _STREAMS,
    "exec": {**_STREAMS, "command": (_STRING, "What to run; once for each word")},
    "portforward": {"ports": (_NUMBER, "Which ports")},
    "proxy": {"path": (_STRING, "What to ask the program for")},
}
"""The parameters of subresources that are no objects: programs, and what they write."""
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
    """Everything in one document of version 2, from which some clients generate themselves."""
    import orjson

    documents = [_described(path, resources) for path in _paths(resources)]
    return orjson.dumps(openapi_v2.document(_INFO, documents))


def _described(path: str, resources: Resources) -> Object:
    is_official = any(row.definition for row in resources if _path(row) == path)
    components: Object = _official() if is_official else {}
    paths: Object = {}
    for row in resources:
        if _path(row) == path:
            name = _component_name(row)
            components[name] = {**row.schema(), "x-kubernetes-group-version-kind": [_identity(row)]}
            components[name + _LIST] = _list_of(row)
            for _, below in row.discoverable_subresources():
                components |= {} if below.kind in components else _reached(below.kind)
            paths |= _paths_of(row)
    head = {"openapi": "3.0.0", "info": _INFO}
    return {**head, "paths": paths, "components": {"schemas": components}}


def _paths_of(row: Served) -> Object:
    """Paths of the collections and of single objects."""
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
    for name, below in row.discoverable_subresources():
        operations = _operations_below(row, name, below)
        paths[f"{root}/{plural}/{{name}}/{name}"] = {
            "parameters": named["parameters"],
            **operations,
        }
    return paths


def _component_name(row: Served) -> str:
    group, version = row.resource.group, row.resource.version
    prefix = ".".join(reversed(group.split("."))) if group else "io.k8s.api.core"
    return f"{prefix}.{version}.{row.kind}"


def _identity(row: Served) -> Object:
    return {"group": row.resource.group, "version": row.resource.version, "kind": row.kind}


def _official() -> Object:
    """The official schemas to which those of the kinds refer."""
    from trainyard.schema import kubernetes_schemas

    return {
        name: openapi(schema)
        for name, schema in kubernetes_schemas.definitions("served").items()
        if not isinstance(schema, str) and name not in kubernetes_schemas.CORE_KINDS
    }


@cache
def _reached(kind: str) -> Object:
    """The official schema of a subresource's kind, with those that it refers to; none of what is
    no object."""
    found: Object = {}
    wanted, official = [kind], _official()
    while wanted:
        if (name := wanted.pop()) in official and name not in found:
            found[name] = official[name]
            wanted += _referred(official[name])
    return found


def _referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(SCHEMAS)
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from _referred(each)


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


def _operations_below(row: Served, name: str, below: Subresource) -> Object:
    actions = {
        "get": "get",
        "post": "create",
        "put": "update",
        "patch": "patch",
        "delete": "delete",
    }
    group, version = below.api or (row.resource.group, row.resource.version)
    identity = {"group": group, "version": version, "kind": below.kind}
    if name in _OPTIONS_BELOW:
        action = "get" if name == "log" else "connect"
        documented = _documented(identity, action, _OPTIONS_BELOW[name], {"type": "string"})
        return {method: documented for method, each in actions.items() if each in below.verbs}
    component = _component_name(row) if below.kind == row.kind else below.kind
    content = {"schema": reference(component)}
    return {
        method: _takes(row, method, content)
        | _documented(identity, _ACTIONS.get(each, each), _OPTIONS.get(each, {}), content["schema"])
        for method, each in actions.items()
        if each in below.verbs
    }


def _operation(row: Served, method: str, action: str) -> Object:
    component = _component_name(row)
    content = {"schema": reference(component)}
    takes = _takes(row, method, content)
    if action == "list":
        content = {"schema": reference(component + _LIST)}
    elif method == "delete":
        content = {"schema": {"type": "object"}}
    options = _OPTIONS.get(action, {})
    action = _ACTIONS.get(action, action)
    return takes | _documented(_identity(row), action, options, content["schema"])


def _takes(row: Served, method: str, content: Object) -> Object:
    if method in ("post", "put"):
        return {"requestBody": {"required": True, "content": {"application/json": content}}}
    if method != "patch":
        return {}
    kinds = {each: {"schema": _patch_schema(each)} for each in _PATCHES}
    if not row.custom:
        kinds[STRATEGIC_MERGE_PATCH] = {"schema": {"type": "object"}}
    return {"requestBody": {"required": True, "content": kinds}}


def _documented(
    identity: Object, action: str, options: Mapping[str, tuple[Object, str]], answer: Object
) -> Object:
    content = {"application/json": {"schema": answer}}
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity,
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": schema}
            for name, (schema, text) in options.items()
        ],
        "responses": {"200": {"description": "OK", "content": content}},
    }
