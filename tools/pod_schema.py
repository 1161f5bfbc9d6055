"""Write or verify ``src/trainyard/schema/data/*.json``, the official schemas that manifests and
the objects of the embedded API server are checked against.

They are cut from the newest schema of the ``kubernetes-validate`` package to what is reachable
from the kinds that a manifest may hold (`pod_template`, `core`), and what the API server is sent
beside these (`served`, which leaves out what the other two have), without descriptions, so that
loading them costs little.

Usage: ``python tools/pod_schema.py [--check]``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from trainyard.embedded.resources.resource_table import Resources

DATA = Path(__file__).parent.parent / "src/trainyard/schema/data"
API = "io.k8s.api."
REQUESTS = (
    "core.v1.Binding",
    "autoscaling.v1.Scale",
    "policy.v1.Eviction",
)
"""What is sent to subresources."""


def served_definitions() -> tuple[str, ...]:
    """Definitions of the objects that the embedded API server stores, which its resources name."""
    return tuple(
        f"{row.resource.group.removesuffix('.k8s.io') or 'core'}.{row.resource.version}."
        f"{row.definition}"
        for row in Resources()
        if row.definition and not row.view_of
    )


ROOTS = {
    "pod_template.json": ("core.v1.PodTemplateSpec",),
    "core.json": (
        "core.v1.ConfigMap",
        "core.v1.Namespace",
        "core.v1.PersistentVolumeClaim",
        "core.v1.Secret",
        "core.v1.Service",
    ),
    "served.json": (*REQUESTS, *served_definitions()),
}
# Allowed values that the official schema states in prose only.
ENUMS = {
    ("Container", "imagePullPolicy"): ["Always", "IfNotPresent", "Never"],
    ("Container", "terminationMessagePolicy"): ["File", "FallbackToLogsOnError"],
    ("ContainerPort", "protocol"): ["TCP", "UDP", "SCTP"],
    ("EndpointSlice", "addressType"): ["IPv4", "IPv6", "FQDN"],
    ("PodSpec", "dnsPolicy"): ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    ("PodSpec", "preemptionPolicy"): ["Never", "PreemptLowerPriority"],
    # ExitCode is no value of Kubernetes; templates carry it because the job's policy has it.
    ("PodSpec", "restartPolicy"): ["Always", "OnFailure", "Never", "ExitCode"],
    ("ServicePort", "protocol"): ["TCP", "UDP", "SCTP"],
    ("ServiceSpec", "sessionAffinity"): ["None", "ClientIP"],
    ("ServiceSpec", "type"): ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
    ("Toleration", "effect"): ["NoSchedule", "PreferNoSchedule", "NoExecute"],
    ("Toleration", "operator"): ["Exists", "Equal", "Lt", "Gt"],
    ("VolumeMount", "mountPropagation"): ["None", "HostToContainer", "Bidirectional"],
}
# There is one of this name in core/v1 too, whose number is required.
RENAMED = {API + "discovery.v1.EndpointPort": "EndpointSlicePort"}
FORMATS: dict[str, dict[str, Any]] = {
    "byte": {"format": "byte"},
    "date-time": {"format": "date-time"},
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
}


def newest_schema() -> tuple[str, dict[str, Any]]:
    """Version and definitions of the newest strict schema."""
    root = files("kubernetes_validate") / "kubernetes-json-schema"
    versions = [d.name for d in root.iterdir() if d.name.endswith("-local-strict")]
    newest = max(versions, key=lambda name: [int(n) for n in name[1:].split("-")[0].split(".")])
    text = (root / newest / "_definitions.json").read_text()
    return newest.split("-")[0], json.loads(text)["$defs"]


def references(node: Any) -> Iterator[str]:
    """Names of the definitions that a schema refers to."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rsplit("/", 1)[-1]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def compact(node: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """A schema in the dialect of CRDs, without prose.

    Null is allowed where a key may be absent, not inside lists.
    """
    out: dict[str, Any] = {"nullable": True} if nullable else {}
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        if name.endswith(".Quantity"):
            return out | {"x-kubernetes-int-or-string": True, "format": "quantity"}
        if name.endswith(".IntOrString"):
            return out | {"x-kubernetes-int-or-string": True}
        return out | {"$ref": short(name)}
    types = [node["type"]] if isinstance(node.get("type"), str) else list(node.get("type", []))
    if kept := [kind for kind in types if kind != "null"]:
        (out["type"],) = kept
    out |= FORMATS.get(node.get("format", ""), {})
    if "properties" in node:
        required = set(node.get("required", ()))
        out["properties"] = {
            key: compact(child, nullable=key not in required)
            for key, child in sorted(node["properties"].items())
        }
    if node.get("required"):
        out["required"] = sorted(node["required"])
    if "items" in node:
        out["items"] = compact(node["items"], nullable=False)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        out["additionalProperties"] = compact(extra, nullable=False)
    return out


def short(name: str) -> str:
    """The last part of a definition's name, or what stands for it; unique among those we use."""
    return RENAMED.get(name, name.rsplit(".", 1)[-1])


def definition(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """One definition, with allowed values added and `containers` left to our own rules."""
    out = compact(schema, nullable=False)
    for (owner, key), values in ENUMS.items():
        if owner == short(name) and key in out.get("properties", {}):
            out["properties"][key]["enum"] = values
    if short(name) == "PodSpec":
        out.pop("required", None)
    if short(name) == "MicroTime":  # with six decimals, always
        out["format"] = "micro-time"
    return out


def reachable(roots: tuple[str, ...], definitions: dict[str, Any]) -> set[str]:
    """The full names of all that the roots refer to, themselves included."""
    pending = [API + root for root in roots]
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(references(definitions[name]))
    return reached


def build(file: str) -> str:
    """One data file: every definition that its roots reach, by its short name."""
    version, definitions = newest_schema()
    reached = reachable(ROOTS[file], definitions)
    if file == "served.json":
        for other in ROOTS.keys() - {file}:
            reached -= reachable(ROOTS[other], definitions)
    kept = sorted(n for n in reached if not n.endswith((".Quantity", ".IntOrString")))
    if len({short(name) for name in kept}) != len(kept):
        raise SystemExit("two definitions share their last name part")
    document: dict[str, Any] = {short(name): definition(name, definitions[name]) for name in kept}
    document["$comment"] = f"Kubernetes {version}; written by tools/pod_schema.py"
    return json.dumps(document, separators=(",", ":"), sort_keys=True) + "\n"


def main() -> int:
    """Write the files, or with ``--check`` say which of them are stale."""
    stale = 0
    for name in ROOTS:
        text, path = build(name), DATA / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is stale; run: python tools/pod_schema.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
