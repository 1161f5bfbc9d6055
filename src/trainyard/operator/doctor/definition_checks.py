"""Checks whether the cluster's CustomResourceDefinitions are those of this trainyard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from trainyard.kinds.server_compatibility import crds_for
from trainyard.kinds.shared.install_commands import command_for_crds
from trainyard.kube.errors import Forbidden, NotFound
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainyard.operator.doctor.doctor_context import DoctorContext, Finding, Object


async def check_definitions(context: DoctorContext) -> AsyncIterator[Finding]:
    """Whether they are established and served, have our fields, and store no older version."""
    wanted = {crd["metadata"]["name"]: crd for crd in crds_for(server=context.version)}
    apply = command_for_crds(context.version)
    good = 0
    for name, ours in wanted.items():
        try:
            theirs = await context.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            yield Finding("definitions", "problem", f"{name} is missing", apply)
            continue
        except Forbidden:
            text = "no right to read definitions, so their versions are not compared"
            yield Finding("definitions", "note", text)
            return
        problems = list(_differences(ours, theirs))
        for text, fix in problems:
            yield Finding("definitions", "problem", f"{name} {text}", fix or apply)
        good += not problems
    if good:
        versions = {crd["spec"]["versions"][0]["name"] for crd in wanted.values()}
        text = (
            f"{good} of {len(wanted)} are those of this trainyard ({', '.join(sorted(versions))})"
        )
        yield Finding("definitions", "ok", text)


def _differences(ours: Object, theirs: Object) -> Iterator[tuple[str, str]]:
    """What is wrong with a definition, and what to do; "": apply our definitions."""
    conditions = {c["type"]: c for c in (theirs.get("status") or {}).get("conditions") or ()}
    established = conditions.get("Established", {})
    if established.get("status") != "True":
        why = conditions.get("NamesAccepted", {}).get("message") or established.get("message", "")
        yield f"is not established: {why}", "delete the definition that holds its names"
    served = {v["name"]: v for v in theirs["spec"]["versions"] if v.get("served")}
    for version in ours["spec"]["versions"]:
        name = version["name"]
        if name not in served:
            yield f"does not serve {name}", ""
            continue
        mine, other = (
            _property_paths(version["schema"]),
            _property_paths(served[name].get("schema") or {}),
        )
        if missing := sorted(mine - other):
            yield f"lacks fields of {name}, it is older: {_abbreviate(missing)}", ""
        elif extra := sorted(other - mine):
            fix = "upgrade this trainyard, and the operator"
            yield f"has more fields of {name}, it is newer: {_abbreviate(extra)}", fix
    current = [v["name"] for v in theirs["spec"]["versions"] if v.get("storage")]
    old = sorted(set((theirs.get("status") or {}).get("storedVersions") or ()) - set(current))
    if old:
        yield f"may still store objects as {', '.join(old)}", "see docs/operations/versions.md"


def _property_paths(schema: Any, path: str = "") -> set[str]:
    """The paths of all properties of a schema."""
    found: set[str] = set()
    if not isinstance(schema, dict):
        return found
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, child in value.items():
                found.add(f"{path}.{name}".lstrip("."))
                found |= _property_paths(child, f"{path}.{name}")
        elif isinstance(value, dict):
            found |= _property_paths(value, path)
    return found


def _abbreviate(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
