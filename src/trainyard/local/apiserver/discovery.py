"""Discovery: which groups, versions and resources are served, in the old and aggregated forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.local.apiserver.formats import json_response
from trainyard.local.apiserver.http import Request, Response, media_types
from trainyard.local.failures import no_such_path
from trainyard.local.resources.served import SERVED, Served

Object = dict[str, Any]

_READ_VERBS = ["get", "list", "watch"]
_ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_REVIEWS = (
    Served(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
        namespaced=False,
    ),
    Served(
        "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview",
        namespaced=False,
    ),
    Served(
        "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview",
        namespaced=False,
    ),
)  # fmt: skip
_POD_SUBRESOURCES: Mapping[str, tuple[str, list[str]]] = {
    "log": ("Pod", ["get"]),
    "exec": ("PodExecOptions", ["create", "get"]),
    "portforward": ("PodPortForwardOptions", ["create", "get"]),
    "binding": ("Binding", ["create"]),
    "eviction": ("Eviction", ["create"]),
}


def _rows() -> Iterable[Served]:
    return (*SERVED.values(), *_REVIEWS)


def groups() -> dict[str, str]:
    """Every named group and its version, core left out."""
    return {row.group: row.version for row in _rows() if row.group}


def respond(request: Request, parts: list[str]) -> Response:
    """The answer for `/api`, `/api/v1`, `/apis`, `/apis/<group>` or `/apis/<group>/<version>`."""
    if len(parts) == 1:
        aggregated = _aggregated_version(request)
        if aggregated is not None:
            return _aggregated(parts[0] == "api", aggregated)
        if parts[0] == "api":
            return json_response(200, {"kind": "APIVersions", "versions": ["v1"]})
        listed = [_group(group, version) for group, version in groups().items()]
        return json_response(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
    group = "" if parts[0] == "api" else parts[1]
    versions = {row.version for row in _rows() if row.group == group}
    if not versions:
        raise no_such_path()
    if parts[0] == "apis" and len(parts) == 2:
        body = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions.pop())}
        return json_response(200, body)
    version = parts[-1]
    if version not in versions:
        raise no_such_path()
    rows = [row for row in _rows() if row.group == group]
    return json_response(
        200,
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for row in rows for entry in _resource_entries(row)],
        },
    )


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _verbs(row: Served) -> list[str]:
    if row in _REVIEWS:
        return ["create"]
    return _READ_VERBS if row.read_only else _ALL_VERBS


def _resource_entries(row: Served) -> Iterable[Object]:
    entry: Object = {
        "name": row.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": _verbs(row),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    yield entry
    for name, kind, verbs in _subresources(row):
        sub: Object = {
            "name": f"{row.plural}/{name}",
            "singularName": "",
            "namespaced": row.namespaced,
            "kind": kind,
            "verbs": verbs,
        }
        if name == "scale":
            sub |= {"group": "autoscaling", "version": "v1"}
        yield sub


def _subresources(row: Served) -> Iterable[tuple[str, str, list[str]]]:
    if row.status:
        yield "status", row.kind, ["get", "patch", "update"]
    if row.scale:
        yield "scale", "Scale", ["get", "patch", "update"]
    if row.resource == "pods":
        for name, (kind, verbs) in _POD_SUBRESOURCES.items():
            yield name, kind, verbs


def _aggregated_version(request: Request) -> str | None:
    for _, parameters in media_types(request.headers.get("accept", "")):
        if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("v") in (
            "v2",
            "v2beta1",
        ):
            return parameters["v"]
    return None


def _aggregated(core: bool, version: str) -> Response:
    found = {"": "v1"} if core else groups()
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group, "creationTimestamp": None},
                "versions": [
                    {
                        "version": group_version,
                        "freshness": "Current",
                        "resources": [
                            _aggregated_resource(row) for row in _rows() if row.group == group
                        ],
                    }
                ],
            }
            for group, group_version in found.items()
        ],
    }
    content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    return json_response(200, body, content_type=content_type)


def _aggregated_resource(row: Served) -> Object:
    entry: Object = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.kind.lower(),
        "verbs": _verbs(row),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": {
                "group": "autoscaling" if name == "scale" else row.group,
                "version": "v1" if name == "scale" else row.version,
                "kind": kind,
            },
            "verbs": verbs,
        }
        for name, kind, verbs in _subresources(row)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry
