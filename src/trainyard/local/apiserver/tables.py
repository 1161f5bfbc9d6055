"""What `kubectl get` prints: the server renders each list as a Table (meta.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.local.resources.columns import Column
from trainyard.local.resources.resource import Served

Object = dict[str, Any]


def render(
    served: Served,
    objects: Sequence[Object],
    metadata: Object,
    *,
    include: str = "Metadata",
    header: bool = True,
) -> Object:
    """A Table of `objects`; `include` is None, Metadata or Object, as the client asks."""
    shown = served.columns()
    table: Object = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in shown
        ]
        if header
        else [],
        "rows": [_row(obj, shown, include) for obj in objects],
    }
    return table


def _row(obj: Object, shown: Sequence[Column], include: str) -> Object:
    row: Object = {"cells": [column.cell(obj) for column in shown]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return row
