"""The CustomResourceDefinitions as the API server needs them; read only when asked for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

from trainyard.local.registry import Registry
from trainyard.local.resources.served import SERVED, Served
from trainyard.schema.times import from_unix

Object = dict[str, Any]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def printer_columns(kind: str) -> Sequence[Object]:
    """The columns that `kubectl get` shows after the name."""
    from trainyard.kinds import crds

    version = crds.crd(kind)["spec"]["versions"][0]
    columns: Sequence[Object] = version.get("additionalPrinterColumns", ())
    return columns


def published(served: Served) -> Object:
    """The schema that clients are shown: ours from its definition, else the official one."""
    from trainyard.kinds import crds
    from trainyard.schema import core

    if served.custom:
        return crds.schema(served.kind)
    described = {"type": "object", "description": f"{served.kind} of {served.api_version}"}
    if served.resource == "pods":
        names = {"metadata": "ObjectMeta", "spec": "PodSpec"}
        return {**described, "properties": {key: _reference(name) for key, name in names.items()}}
    if not served.group and served.kind in core.CORE_KINDS:
        return {**_translated(core.definitions("core")[served.kind]), **described}
    return {**described, "x-kubernetes-preserve-unknown-fields": True}


def core_components() -> Object:
    """The official schemas that those of pods and the core kinds refer to."""
    from trainyard.schema import core

    known = {**core.definitions("core"), **core.definitions("pod_template")}
    return {
        name: _translated(schema)
        for name, schema in known.items()
        if not isinstance(schema, str) and name not in core.CORE_KINDS
    }


def _reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _translated(schema: Any) -> Any:
    """A schema of the API's own dialect in that of OpenAPI: references are spelt out."""
    if isinstance(schema, list):
        return [_translated(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return _reference(schema["$ref"])
    return {key: _translated(value) for key, value in schema.items()}


@cache
def definitions() -> tuple[Object, ...]:
    """The definitions as if they had been created and accepted."""
    from trainyard.kinds import crds

    now = from_unix()
    return tuple(_established(definition, now) for definition in crds.all_crds())


def show_definitions(registry: Registry) -> None:
    """Make the definitions readable in the registry; they are part of the program, not stored."""
    if not registry.list(DEFINITIONS):
        registry.show(DEFINITIONS, definitions())


def _established(definition: Object, now: str) -> Object:
    served = SERVED[DEFINITIONS]
    name = definition["metadata"]["name"]
    spec = definition["spec"]
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": "",
            "lastTransitionTime": now,
        }
        for type_, reason in (
            ("NamesAccepted", "NoConflicts"),
            ("Established", "InitialNamesAccepted"),
        )
    ]
    return {
        **definition,
        "apiVersion": served.api_version,
        "kind": served.kind,
        "metadata": {
            **definition["metadata"],
            "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
            "resourceVersion": "1",
            "creationTimestamp": now,
        },
        "status": {
            "acceptedNames": spec["names"],
            "conditions": conditions,
            "storedVersions": [version["name"] for version in spec["versions"]],
        },
    }
