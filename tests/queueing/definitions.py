"""The definitions that schedulers publish; `published/README.md` names their sources. Kubernetes'
own are in the OpenAPI of its releases, which the package kubernetes-validate has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

RELEASES = {"v1alpha2": "1.36", "v1alpha3": "1.37", "v1beta1": "1.37"}
"""Which release of Kubernetes has PodGroups of its own in that version."""
PUBLISHED = Path(__file__).parent / "published"


def published(scheduler: str) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of one: `kueue`, `volcano`, `scheduler-plugins`."""
    return [json.loads(path.read_bytes()) for path in sorted(PUBLISHED.glob(f"{scheduler}-*.json"))]


def schema_of(plural: str, scheduler: str) -> dict[str, Any]:
    """The schema of one resource."""
    (found,) = [
        version["schema"]["openAPIV3Schema"]
        for each in published(scheduler)
        for version in each["spec"]["versions"]
        if each["spec"]["names"]["plural"] == plural
    ]
    return dict(found)


def native_schema(version: str) -> dict[str, Any]:
    """That of Kubernetes' own PodGroups, as a definition has it: whole, and without references."""
    schemas = files("kubernetes_validate") / "kubernetes-json-schema"
    release = schemas / f"v{RELEASES[version]}.0-local-strict"
    known = json.loads((release / "_definitions.json").read_text())["$defs"]
    return _whole(known[f"io.k8s.api.scheduling.{version}.PodGroup"], known)


def _whole(schema: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    if name.endswith(".ObjectMeta"):  # the server has its own
        return {"type": "object"}
    schema = known[name] if name else schema
    kind = schema["type"]
    made = {"type": kind if isinstance(kind, str) else kind[0]}
    made |= {each: schema[each] for each in ("required", "format", "enum") if each in schema}
    if "properties" in schema:
        fields = schema["properties"].items()
        made["properties"] = {each: _whole(part, known) for each, part in fields}
    if "items" in schema:
        made["items"] = _whole(schema["items"], known)
    return made
