"""Makes CustomResourceDefinitions from the models, for ``tools/crds.py``; not used at run time.

The schemas are structural: every field of ours, with its description for ``kubectl explain``. Pod
templates stay open (their fields depend on the cluster's version). Old spellings are declared, so
that no server prunes them before they are understood. CEL rules repeat what a server can check
without us: names, ranges, one-of and immutability. They cannot see into pod templates, of which
only is declared that there is a container.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trainyard.kinds.immutability_policies import mutable_paths
from trainyard.kinds.kind import AGE, PHASE, Column, Kind
from trainyard.kinds.shared.legacy_spellings import Legacy
from trainyard.schema.model import Model
from trainyard.schema.object_names import MAX_LABEL
from trainyard.schema.structural_schema import INT64

Schema = dict[str, Any]

_KEPT = (
    "description",
    "enum",
    "exclusiveMaximum",
    "format",
    "maximum",
    "minItems",
    "minimum",
    "pattern",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
)
_MAX_ITEMS = 64  # of lists by type; bounds the estimated cost of the rules on their items
_FIXED = {
    "rule": "self == oldSelf",
    "message": "cannot be changed after creation; delete the job and create it again",
}
_NAME = {
    "rule": f"self.metadata.name.size() <= {MAX_LABEL} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": "metadata.name cannot be a host name; use at most 63 lower-case letters, digits and "
    "'-', a letter first",
}
_ELASTIC_RULES = (
    {
        "rule": "!has(self.minReplicas) || !has(self.maxReplicas) || "
        "self.minReplicas <= self.maxReplicas",
        "message": "minReplicas must not exceed maxReplicas",
    },
    {
        "rule": "!has(self.expectedReplicas) || !has(self.maxReplicas) || "
        "self.expectedReplicas <= self.maxReplicas",
        "message": "expectedReplicas must not exceed maxReplicas",
    },
    {
        "rule": "!has(self.expectedReplicas) || !has(self.minReplicas) || "
        "self.expectedReplicas >= self.minReplicas",
        "message": "expectedReplicas must not be below minReplicas",
    },
)
_DEBUG = "(has(self.runMode) && has(self.runMode.debug))"
_RESUME = "(has(self.runMode) && has(self.runMode.pause) && has(self.runMode.pause.resumeSpecs))"


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.elastic:
        subresources["scale"] = {
            "specReplicasPath": ".spec.elastic.expectedReplicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.full_name},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": kind.list_kind,
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                **({"categories": ["jobs"]} if kind.is_job else {}),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema(kind)},
                    "subresources": subresources,
                    "additionalPrinterColumns": columns(kind),
                }
            ],
        },
    }


def columns(kind: Kind) -> list[dict[str, Any]]:
    """What ``kubectl get`` prints; those with priority 1 only with ``-o wide``."""
    return [
        {"name": column.name, "type": column.type, "jsonPath": column.path}
        | ({"priority": column.priority} if column.priority else {})
        for column in kind.columns or _job_columns(kind)
    ]


def _job_columns(kind: Kind) -> list[Column]:
    wide = [
        Column(name, "integer", f".status.aggregate.{name.lower()}", 1)
        for name in ("Pending", "Succeeded", "Failed")
    ]
    return [
        PHASE,
        Column("Running", "integer", ".status.aggregate.running"),
        Column("Restarts", "integer", f".status.{kind.budget}"),
        AGE,
        *wide,
        Column("Queue", "string", ".spec.scheduler.t9kScheduler.queue", 1),
        Column("Progress", "string", ".status.progress.message", 1),
        Column("Started", "date", ".status.startTime", 1),
        Column("Completed", "date", ".status.completionTime", 1),
    ]


def schema(kind: Kind) -> Schema:
    """The structural schema of a kind."""
    out = _of(kind.model)
    text = out["properties"]["status"]["description"]
    out["properties"]["status"] = _of(kind.status_model) | {"description": text}
    for key in ("apiVersion", "kind"):
        out["properties"][key] = {"type": "string", "description": _ROOT_TEXTS[key]}
    out["properties"]["metadata"] = {"type": "object"}
    out["required"] = [key for key in out.get("required", ()) if key == "spec"]
    if not out["required"]:
        del out["required"]
    if kind.legacy is not None:
        _add_legacy(kind.legacy, out)
    if kind.is_job:
        _add_rules(kind, out["properties"]["spec"])
        _extend(out, (_NAME,))
    return out


def _of(model: type[Model]) -> Schema:
    document = model.model_json_schema(by_alias=True)
    return _structural(document, document.get("$defs", {}))


_ROOT_TEXTS = {
    "apiVersion": "The version of this object's schema, e.g. batch.tensorstack.dev/v1beta1.",
    "kind": "The kind of this object.",
}


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """A JSON schema of pydantic's as a structural one: inlined, without null and titles."""
    node = _resolved(node, definitions)
    out: Schema = {key: node[key] for key in _KEPT if key in node}
    if "properties" in node:
        out["properties"] = {
            key: _structural(child, definitions) for key, child in node["properties"].items()
        }
        if node.get("additionalProperties") is True:
            out["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    if node.get("required"):
        out["required"] = list(node["required"])
    if "properties" in out.get("properties", {}).get("template", {}):
        out["required"] = [*out.get("required", ()), "template"]
    if "items" in node:
        out["items"] = _structural(node["items"], definitions)
    if out.get("type") == "integer":
        _format_integer(out)
    return out


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind references and options, with the description nearest to the field."""
    while "$ref" in node or "anyOf" in node:
        text = {"description": node["description"]} if "description" in node else {}
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        else:
            (target,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        node = {**target, **text}
    return node


def _format_integer(out: Schema) -> None:
    """Names the width of an integer instead of its natural bounds."""
    out["format"] = "int64" if out.get("maximum", INT64) >= 2**31 else "int32"
    for key, limit in (("minimum", -(2**31)), ("maximum", 2**31 - 1)):
        if abs(out.get(key, limit)) >= abs(limit):
            out.pop(key, None)


def _extend(node: Schema, rules: Iterable[dict[str, str]]) -> None:
    node["x-kubernetes-validations"] = [*node.get("x-kubernetes-validations", ()), *rules]


def _place(root: Schema, path: tuple[str, ...]) -> Schema:
    for part in path:
        root = root["properties"][part]
    return root


def _one_spelling(old: str, new: str, kind: str) -> dict[str, str]:
    """Old and new spelling must not contradict each other; lists are too costly to compare."""
    rule = f"!has(self.{old}) || !has(self.{new})"
    if kind != "array":
        rule += f" || self.{old} == self.{new}"
    return {"rule": rule, "message": f"{old} contradicts {new}; write {new} only"}


def _add_legacy(legacy: Legacy, root: Schema) -> None:
    """Declares the old spellings beside today's."""
    for rename in legacy.renames:
        parent = _place(root, rename.parent)["properties"]
        parent[rename.old] = {
            **parent[rename.new],
            "description": f"Deprecated: write `{rename.new}`.",
        }
        rule = _one_spelling(rename.old, rename.new, parent[rename.old]["type"])
        _extend(_place(root, rename.parent), (rule,))
    if legacy.layout is not None:
        legacy.layout.declare(_place(root, ("spec",)))


def _add_rules(kind: Kind, spec: Schema) -> None:
    """CEL rules and list keys of a job's spec."""
    mutable = mutable_paths(kind)
    spec["properties"] = {
        key: _fixed(child, ("spec", key), mutable) for key, child in spec["properties"].items()
    }
    properties = spec["properties"]
    for parent, key in _typed_lists(spec):
        parent[key] |= {
            "maxItems": _MAX_ITEMS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        }
        parent[key]["items"]["properties"]["type"]["maxLength"] = MAX_LABEL
    if "replicaSpecs" in properties:
        properties["replicaSpecs"]["minItems"] = 1
        name = properties["replicaSpecs"]["items"]["properties"]["type"]
        name.setdefault("pattern", "^[-a-z0-9]*[a-z0-9]$")
    if "elastic" in properties:
        _extend(properties["elastic"], _ELASTIC_RULES)
    _extend(spec, _presence(spec))
    for path, rule in kind.cel.items():
        _extend(_place(spec, path), (rule,))


def _typed_lists(spec: Schema) -> list[tuple[dict[str, Schema], str]]:
    """The lists whose items are told apart by ``type``, each with its parent's properties."""
    mode = spec["properties"]["runMode"]["properties"]
    lists = [
        (mode["debug"]["properties"], "replicaSpecs"),
        (mode["pause"]["properties"], "resumeSpecs"),
    ]
    if "replicaSpecs" in spec["properties"]:
        lists.append((spec["properties"], "replicaSpecs"))
    return lists


def _fixed(node: Schema, path: tuple[str, ...], mutable: Collection[tuple[str, ...]]) -> Schema:
    """``node`` with a rule on each number, switch and short text that may not change."""
    out = dict(node)
    if "properties" in node:
        out["properties"] = {
            key: _fixed(child, (*path, key), mutable) for key, child in node["properties"].items()
        }
    elif path[1] in ("replicaSpecs", "runMode") and node.get("type") == "array":
        if "properties" in node.get("items", {}):
            out["items"] = _fixed(node["items"], path, mutable)
    elif path not in mutable and (node.get("type") in ("integer", "boolean") or "enum" in node):
        out["x-kubernetes-validations"] = [_FIXED]
    return out


def _presence(spec: Schema) -> list[dict[str, str]]:
    """Rules that no part of the spec is added or taken away later."""
    parts = [key for key in spec["properties"] if key != "runMode"]
    same = " && ".join(f"has(self.{key}) == has(oldSelf.{key})" for key in parts)
    rules = [{"rule": same, "message": f"{_FIXED['message']} (a field was added or removed)"}]
    for text, what in ((_DEBUG, "runMode.debug"), (_RESUME, "runMode.pause.resumeSpecs")):
        old = text.replace("self", "oldSelf")
        rules.append({"rule": f"{text} == {old}", "message": f"{what} {_FIXED['message']}"})
    if "replicaSpecs" in parts:
        same = (
            "self.replicaSpecs.size() == oldSelf.replicaSpecs.size() && self.replicaSpecs.all("
            "new, oldSelf.replicaSpecs.exists(old, old.type == new.type))"
        )
        rules.append(
            {
                "rule": f"!has(self.replicaSpecs) || !has(oldSelf.replicaSpecs) || ({same})",
                "message": f"replicaSpecs {_FIXED['message']}",
            }
        )
    return rules
