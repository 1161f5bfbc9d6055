"""Discovery: which groups, versions and resources are served, in the old and aggregated forms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainyard.local.apiserver import reviews
from trainyard.local.apiserver.formats import json_response
from trainyard.local.apiserver.http import Request, Response, media_types
from trainyard.local.failures import no_such_path
from trainyard.local.resources.resource import Served
from trainyard.local.resources.table import Resources

Object = dict[str, Any]


def _rows(resources: Resources) -> Iterable[Served]:
    return (*resources, *reviews.REVIEWS)


def _groups(rows: Iterable[Served]) -> dict[str, str]:
    """Every named group and its version, core left out."""
    return {row.resource.group: row.resource.version for row in rows if row.resource.group}


def respond(request: Request, parts: list[str], resources: Resources) -> Response:
    """The answer for `/api`, `/api/v1`, `/apis`, `/apis/<group>` or `/apis/<group>/<version>`."""
    rows = _rows(resources)
    if len(parts) == 1:
        aggregated = _aggregated_version(request)
        if aggregated is not None:
            return _aggregated(rows, parts[0] == "api", aggregated)
        if parts[0] == "api":
            return json_response(200, {"kind": "APIVersions", "versions": ["v1"]})
        listed = [_group(group, version) for group, version in _groups(rows).items()]
        return json_response(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
    group = "" if parts[0] == "api" else parts[1]
    versions = {row.resource.version for row in rows if row.resource.group == group}
    if not versions:
        raise no_such_path()
    if parts[0] == "apis" and len(parts) == 2:
        body = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions.pop())}
        return json_response(200, body)
    version = parts[-1]
    if version not in versions:
        raise no_such_path()
    return json_response(
        200,
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [
                entry
                for row in rows
                if row.resource.group == group
                for entry in _resource_entries(row)
            ],
        },
    )


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resource_entries(row: Served) -> Iterable[Object]:
    entry: Object = {
        "name": row.resource.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.resource.namespaced,
        "kind": row.kind,
        "verbs": row.verbs,
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    yield entry
    for name, sub in row.described():
        below: Object = {
            "name": f"{row.resource.plural}/{name}",
            "singularName": "",
            "namespaced": row.resource.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        }
        if sub.api is not None:
            below["group"], below["version"] = sub.api
        yield below


def _aggregated_version(request: Request) -> str | None:
    for _, parameters in media_types(request.headers.get("accept", "")):
        if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("v") in (
            "v2",
            "v2beta1",
        ):
            return parameters["v"]
    return None


def _aggregated(rows: Iterable[Served], core: bool, version: str) -> Response:
    found = {"": "v1"} if core else _groups(rows)
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
                            _aggregated_resource(row) for row in rows if row.resource.group == group
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
        "resource": row.resource.plural,
        "responseKind": _response_kind(row.resource[:2], row.kind),
        "scope": "Namespaced" if row.resource.namespaced else "Cluster",
        "singularResource": row.kind.lower(),
        "verbs": row.verbs,
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": _response_kind(sub.api or row.resource[:2], sub.kind),
            "verbs": sub.verbs,
        }
        for name, sub in row.described()
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _response_kind(api: tuple[str, str], kind: str) -> Object:
    return {"group": api[0], "version": api[1], "kind": kind}
