"""What `kubectl get` prints: the server renders each list as a Table (meta.k8s.io/v1).

Custom kinds print the `additionalPrinterColumns` of their CustomResourceDefinition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from trainyard.local.resources.columns import AGE, COLUMNS, NAME, Cell, Column
from trainyard.local.resources.served import Served
from trainyard.schema.times import age

Object = dict[str, Any]


def columns(served: Served) -> tuple[Column, ...]:
    """The columns of a resource."""
    return (
        _custom_columns(served.kind) if served.custom else COLUMNS.get(served.resource, (NAME, AGE))
    )


@cache
def _custom_columns(kind: str) -> tuple[Column, ...]:
    from trainyard.local.apiserver.schemas import printer_columns

    custom = tuple(
        Column(
            column["name"],
            _json_path(column["jsonPath"], column["type"]),
            "string" if column["type"] == "date" else column["type"],
            column.get("priority", 0),
            description=column.get("description", ""),
        )
        for column in printer_columns(kind)
    )
    return (NAME, *custom) if custom else (NAME, AGE)


def _json_path(path: str, type_: str) -> Cell:
    """The simple JSON paths of printer columns: `.a.b`, `.a[0].b` and `.a[?(@.type=="X")].b`."""
    steps = re.findall(r"\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]|\[(\d+)\]|\.?([\w/-]+)", path)

    def cell(obj: Object) -> Any:
        value: Any = obj
        for key, wanted, index, field in steps:
            if field:
                value = value.get(field) if isinstance(value, dict) else None
            elif index:
                value = (
                    value[int(index)]
                    if isinstance(value, list) and len(value) > int(index)
                    else None
                )
            else:
                items = value if isinstance(value, list) else []
                value = next((each for each in items if each.get(key) == wanted), None)
        if type_ == "date":
            return age(value) if value else None
        return value

    return cell


def render(
    served: Served,
    objects: Sequence[Object],
    metadata: Object,
    *,
    include: str = "Metadata",
    header: bool = True,
) -> Object:
    """A Table of `objects`; `include` is None, Metadata or Object, as the client asks."""
    shown = columns(served)
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
