"""Discovery: which groups, versions and resources are served, in the old and aggregated forms."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.embedded.api_errors import no_such_path
from trainyard.embedded.apiserver.auth.access_reviews import REVIEWS
from trainyard.embedded.apiserver.http.http_messages import Request, Response, media_types
from trainyard.embedded.apiserver.metrics_api import METRICS
from trainyard.embedded.apiserver.requests.response_encoding import json_response
from trainyard.embedded.resources.resource import Object, Served
from trainyard.embedded.resources.resource_table import Resources


def _groups(rows: Iterable[Served]) -> dict[str, str]:
    """Every named group and its version, core left out."""
    return {row.resource.group: row.resource.version for row in rows if row.resource.group}


def respond(request: Request, parts: list[str], resources: Resources) -> Response:
    """The answer for `/api`, `/api/v1`, `/apis`, `/apis/<group>` or `/apis/<group>/<version>`."""
    rows = (*resources, *REVIEWS, *METRICS)
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
    mine = (row for row in rows if row.resource.group == group)
    listing = {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [entry for row in mine for entry in _resource_entries(row)],
    }
    return json_response(200, listing)


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resource_entries(row: Served) -> Iterable[Object]:
    yield {
        "name": row.resource.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.resource.namespaced,
        "kind": row.kind,
        **_common(row),
    }
    for name, sub in row.discoverable_subresources():
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


def _common(row: Served) -> Object:
    lists = {"shortNames": row.short_names, "categories": row.categories}
    return {"verbs": row.verbs, **{key: value for key, value in lists.items() if value}}


def _aggregated_version(request: Request) -> str | None:
    for _, parameters in media_types(request.headers.get("accept", "")):
        version = parameters.get("v")
        if parameters.get("as") == "APIGroupDiscoveryList" and version in ("v2", "v2beta1"):
            return version
    return None


def _aggregated(rows: Iterable[Served], core: bool, version: str) -> Response:
    found = {"": "v1"} if core else _groups(rows)
    items: list[Object] = []
    for group, served in found.items():
        listed = [_aggregated_resource(row) for row in rows if row.resource.group == group]
        versions = [{"version": served, "freshness": "Current", "resources": listed}]
        metadata = {"name": group, "creationTimestamp": None}
        items.append({"metadata": metadata, "versions": versions})
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }
    content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    return json_response(200, body, content_type=content_type)


def _aggregated_resource(row: Served) -> Object:
    entry: Object = {
        "resource": row.resource.plural,
        "responseKind": _response_kind(row.resource[:2], row.kind),
        "scope": "Namespaced" if row.resource.namespaced else "Cluster",
        "singularResource": row.kind.lower(),
        **_common(row),
    }
    subresources = [
        {
            "subresource": name,
            "responseKind": _response_kind(sub.api or row.resource[:2], sub.kind),
            "verbs": sub.verbs,
        }
        for name, sub in row.discoverable_subresources()
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _response_kind(api: tuple[str, str], kind: str) -> Object:
    return {"group": api[0], "version": api[1], "kind": kind}
