"""The CustomResourceDefinitions as the API server needs them; imported only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from trainyard.local.resources import Served

Object = dict[str, Any]

_DEFAULT_COLUMNS: Sequence[Object] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Running", "type": "integer", "jsonPath": ".status.aggregate.running"},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.backoffCount"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


@cache
def definitions() -> dict[str, Object]:
    """Every CustomResourceDefinition by kind."""
    return {}


def printer_columns(kind: str) -> Sequence[Object]:
    """The columns that `kubectl get` shows after the name."""
    definition = definitions().get(kind)
    if definition is None:
        return _DEFAULT_COLUMNS
    columns: Sequence[Object] = definition["spec"]["versions"][0].get(
        "additionalPrinterColumns", ()
    )
    return columns


def schema(kind: str) -> Object | None:
    """The structural schema of a kind, if it has one."""
    definition = definitions().get(kind)
    if definition is None:
        return None
    found: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def published(served: Served) -> Object:
    """The schema that clients are shown: ours from the definition, else just an object."""
    found = schema(served.kind) if served.custom else None
    return found or {
        "type": "object",
        "description": f"{served.kind} of {served.api_version}",
        "x-kubernetes-preserve-unknown-fields": True,
    }
