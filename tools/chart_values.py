"""The values of the chart: what each is, its default, and what it may be."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import yaml

from trainyard.operator.config.settings_table import SETTINGS

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 50}
_TEXT = {"type": "string"}
_BOOL = {"type": "boolean"}
_MAP = {"type": "object"}
_LIST = {"type": "array", "items": {"type": "object"}}
_OWN = ("port", "leaseNamespace", "channelPort", "channelAddress", "channelEndpoint")
"""Settings that the chart itself sees to."""
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Value:
    """One value by its path."""

    path: str
    default: Any
    schema: dict[str, Any]
    help: str


VALUES = (
    Value("name", "trainyard-operator", _NAME, "Of the Deployment and of what belongs to it."),
    Value("image.repository", "", _TEXT, "The image that was built from the Dockerfile. Required."),
    Value("image.tag", "", _TEXT, "The version of the chart if empty."),
    Value("image.digest", "", _TEXT, "sha256:…; counts before the tag."),
    Value(
        "image.pullPolicy",
        "IfNotPresent",
        {"enum": ["Always", "IfNotPresent", "Never"]},
        "",
    ),
    Value("imagePullSecrets", [], _LIST, "As in a pod's spec: [{name: registry}]."),
    Value(
        "replicas", 2, {"type": "integer", "minimum": 0}, "Operators that run; one works at a time."
    ),
    Value(
        "settings",
        {},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {**each.values.schema(), "description": each.help}
                for name, each in SETTINGS.items()
                if name not in _OWN
            },
        },
        "The operator's settings, as in its file: docs/reference/settings.md. Namespaces, kinds "
        "and tensorboards decide on its rights: with namespaces there are Roles in these only.",
    ),
    Value(
        "resources",
        {"requests": {"cpu": "100m", "memory": "128Mi"}},
        _MAP,
        "Some 10 KB of memory a pod that is looked after; see docs/install.md.",
    ),
    Value("nodeSelector", {}, _TEXTS, ""),
    Value("tolerations", [], _LIST, ""),
    Value("affinity", {}, _MAP, "If empty, replicas prefer different nodes."),
    Value("topologySpreadConstraints", [], _LIST, ""),
    Value("priorityClassName", "", _TEXT, "system-cluster-critical, for example."),
    Value("podLabels", {}, _TEXTS, ""),
    Value("podAnnotations", {}, _TEXTS, ""),
    Value("env", [], _LIST, "More variables of the container."),
    Value("volumes", [], _LIST, "More volumes of the pod, for a record, for example."),
    Value("volumeMounts", [], _LIST, "And where they are mounted."),
    Value("serviceAccount.create", True, _BOOL, ""),
    Value("serviceAccount.name", "", _TEXT, "The name above if empty."),
    Value("rbac.create", True, _BOOL, "The operator's own rights."),
    Value(
        "aggregatedRoles.create",
        True,
        _BOOL,
        "Add our kinds to the cluster's roles view, edit and admin. Once a cluster.",
    ),
    Value("definitions.install", True, _BOOL, "CustomResourceDefinitions. Once a cluster."),
    Value(
        "definitions.keep",
        True,
        _BOOL,
        "Leave them on uninstall: without them all jobs are deleted.",
    ),
    Value(
        "policies.install",
        True,
        _BOOL,
        "Admission policies that keep specs as they are (Kubernetes 1.30). Once a cluster.",
    ),
    Value("service.enabled", True, _BOOL, "A Service of the metrics."),
    Value("podDisruptionBudget.enabled", True, _BOOL, "One operator is evicted at a time."),
    Value("networkPolicy.enabled", False, _BOOL, "Only the ports of the endpoints are reached."),
    Value("networkPolicy.from", [], _LIST, "From where; empty: from anywhere."),
    Value("serviceMonitor.enabled", False, _BOOL, "For the Prometheus operator."),
    Value("serviceMonitor.interval", "30s", _TEXT, ""),
    Value(
        "serviceMonitor.tlsConfig",
        {"insecureSkipVerify": True},
        _MAP,
        "How Prometheus verifies the certificate of settings.metricsSecure. It reads by the role "
        "trainyard-metrics, which has to be bound to it.",
    ),
)


def schema() -> dict[str, Any]:
    """JSON schema of the values: none is unknown."""
    root = _closed()
    for value in VALUES:
        *above, last = value.path.split(".")
        node = root
        for name in above:
            node = node["properties"].setdefault(name, _closed())
        described = {"description": value.help} if value.help else {}
        node["properties"][last] = {**value.schema, **described}
    # Helm hands it on to charts of which this is a part.
    root["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **root}


def values_text() -> str:
    """The defaults as YAML, each with what it is."""
    lines: list[str] = []
    inside = ""
    for value in VALUES:
        group, _, name = value.path.rpartition(".")
        if group != inside and group:
            lines.append(f"{group}:")
        inside = group
        indent = "  " if group else ""
        lines += [f"{indent}# {line}" for line in textwrap.wrap(value.help, 94)]
        text = yaml.safe_dump(value.default, default_flow_style=True).removesuffix("\n...\n")
        lines.append(f"{indent}{name}: {text.strip()}")
    return "\n".join(lines) + "\n"


def _closed() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}
