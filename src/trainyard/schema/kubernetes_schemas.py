"""The official Kubernetes schemas of pod templates, of the core kinds in manifests, and of all
that the embedded API server serves.

The data files are cut from the ``kubernetes-validate`` package by ``tools/pod_schema.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as File
from typing import Any

from trainyard.schema import structural_schema
from trainyard.schema.object_names import MAX_LABEL, is_dns_label
from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.claim_rules import claim
from trainyard.schema.rules.common_rules import label_name, object_name, shown
from trainyard.schema.rules.config_rules import config_map, secret
from trainyard.schema.rules.service_rules import service

CORE_KINDS = ("ConfigMap", "Namespace", "PersistentVolumeClaim", "Secret", "Service")
"""Core kinds that a manifest may hold beside jobs."""
_RULES: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Problem]]] = {
    "ConfigMap": config_map,
    "PersistentVolumeClaim": claim,
    "Secret": secret,
    "Service": service,
}


@cache
def definitions(name: str) -> Mapping[str, structural_schema.Schema]:
    """The definitions of ``data/<name>.json`` by their short names; "served" has all of them."""
    text = (File(__file__).parent / "data" / f"{name}.json").read_bytes()
    found: dict[str, structural_schema.Schema] = json.loads(text)
    if name == "served":
        return {**definitions("pod_template"), **definitions("core"), **found}
    return found


def check_part(value: Any, definition: str, path: Path = ()) -> list[Problem]:
    """Every problem of a part of a pod template, e.g. of a ``ResourceRequirements``."""
    known = definitions("pod_template")
    return structural_schema.check(value, known[definition], path, known)


def check_core(obj: dict[str, Any]) -> list[Problem]:
    """Every problem of an object of one of ``CORE_KINDS``."""
    known = definitions("core")
    found = structural_schema.check(obj, known[obj["kind"]], (), known)
    rules = _RULES.get(obj["kind"])
    return [*_name(obj), *(found or (rules(obj) if rules is not None else ()))]


def _name(obj: dict[str, Any]) -> Iterator[Problem]:
    """Whether its name is one of its kind, whatever else is wrong with it."""
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    path: Path = ("metadata", "name")
    if not name and not (isinstance(metadata, dict) and metadata.get("generateName")):
        yield error(path, REQUIRED)
    elif isinstance(name, str) and name:
        what = f"name of a {obj['kind']}"
        if obj["kind"] == "Service" and not is_dns_label(name):
            yield error(
                path,
                f"{shown(name)} is no {what}; use at most {MAX_LABEL} lower-case letters, digits "
                "and '-', a letter first",
            )
        elif obj["kind"] == "Namespace":
            yield from label_name(name, path, what)
        elif obj["kind"] != "Service":
            yield from object_name(name, path, what)
