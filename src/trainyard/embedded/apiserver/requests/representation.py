"""Content negotiation: objects as they are, as rows of a Table, or their metadata alone.

https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trainyard.embedded.api_errors import not_acceptable
from trainyard.embedded.apiserver.http.http_messages import Request, media_types
from trainyard.embedded.resources.printer_columns import Column
from trainyard.embedded.resources.resource import Object, Served

JSON, YAML = "application/json", "application/yaml"
_GROUP, _API_VERSION = "meta.k8s.io", "meta.k8s.io/v1"
_TABLE, _METADATA = "Table", "PartialObjectMetadata"
_SHAPES = {_TABLE: _TABLE, _METADATA: _METADATA, f"{_METADATA}List": _METADATA}
_VERSIONS = ("v1", "v1beta1")
_TYPES = {JSON: JSON, "application/*": JSON, "*/*": JSON, YAML: YAML}
"""Content type of the answer by accepted media type. JSON is also YAML."""
_DEFINITION = ("name", "type", "format", "description", "priority")


class Representation(NamedTuple):
    """The representation that a client accepts."""

    content_type: str = JSON
    kind: str = ""
    """Table or PartialObjectMetadata; "": objects as they are."""
    include: str = "Metadata"
    """How much of each object the rows of a Table carry: None, Metadata or Object."""

    def render(self, served: Served, obj: Object, *, header: bool = True) -> Object:
        """One object; `header`: a Table includes its column definitions."""
        if self.kind == _TABLE:
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return self.table(served, [obj], metadata, header=header)
        return _partial(obj) if self.kind else obj

    def render_list(self, served: Served, objects: Iterable[Object], metadata: Object) -> Object:
        """A collection; only as Table or metadata."""
        if self.kind == _TABLE:
            return self.table(served, objects, metadata)
        return {
            **_identity(f"{_METADATA}List"),
            "metadata": metadata,
            "items": [_partial(each) for each in objects],
        }

    def bookmark(self, served: Served, metadata: Object) -> Object:
        """A bookmark of a watch."""
        if self.kind == _TABLE:
            return self.table(served, [], metadata, header=False)
        kind, version = served.kind, served.resource.api_version
        identity = _identity(_METADATA) if self.kind else {"kind": kind, "apiVersion": version}
        return {**identity, "metadata": metadata}

    def table(
        self,
        served: Served,
        objects: Iterable[Object],
        metadata: Object,
        *,
        header: bool = True,
    ) -> Object:
        """Rows with the columns that `kubectl get` prints."""
        columns = served.columns()
        definitions = [{key: getattr(column, key) for key in _DEFINITION} for column in columns]
        return {
            **_identity(_TABLE),
            "metadata": metadata,
            "columnDefinitions": definitions if header else [],
            "rows": [self._row(obj, columns) for obj in objects],
        }

    def _row(self, obj: Object, columns: Sequence[Column]) -> Object:
        row: Object = {"cells": [column.show(obj) for column in columns]}
        if self.include == "Object":
            row["object"] = obj
        elif self.include != "None":
            row["object"] = _partial(obj)
        return row


_PLAIN = Representation()


def negotiate_representation(request: Request) -> Representation:
    """The first of the Accept header that is supported; raises NotAcceptable where none is."""
    accept = request.headers.get("accept", "")
    if not accept or accept == JSON:
        return _PLAIN
    for kind, parameters in sorted(media_types(accept), key=_weight, reverse=True):
        wanted = parameters.get("as", "")
        content_type = _TYPES.get(kind, "")
        if not content_type or (wanted and not _is_offered(wanted, parameters)):
            continue
        include = request.query.get("includeObject") or "Metadata"
        return Representation(content_type, _SHAPES.get(wanted, ""), include)
    raise not_acceptable((JSON, YAML))


def _is_offered(wanted: str, parameters: Mapping[str, str]) -> bool:
    group, version = parameters.get("g", _GROUP), parameters.get("v", _VERSIONS[0])
    return wanted in _SHAPES and group == _GROUP and version in _VERSIONS


def _weight(clause: tuple[str, Mapping[str, str]]) -> float:
    try:
        return float(clause[1].get("q", "1"))
    except ValueError:
        return 1.0


def _identity(kind: str) -> Object:
    return {"kind": kind, "apiVersion": _API_VERSION}


def _partial(obj: Object) -> Object:
    return {**_identity(_METADATA), "metadata": obj["metadata"]}
