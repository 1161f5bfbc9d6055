"""What is mutated: valid objects of every served kind, from the examples and from the schemas."""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.resources.resource import Served
from trainyard.schema import kubernetes_schemas

Value = Any
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
NAMES = ("a", "b", "c")
NAMESPACES = ("default", "default", "default", "other", "kube-system")
_DEPTH = 7
_TEXTS = (
    "a",
    "default",
    "x-1",
    "10.1.2.3",
    "5m",
    "1Gi",
    "example/train:1",
    "/data",
    "2026-01-01T00:00:00Z",
)

_LEAVES: Mapping[str, tuple[Value, ...]] = {
    "integer": (0, 1, 2, 80, 4000),
    "number": (0, 1, 0.5),
    "boolean": (True, False),
}

_CONTAINER = {"name": "c", "image": "x", "command": ["true"]}
_POD = {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}
_INVOLVED = {"kind": "Pod", "name": "a", "namespace": "default", "uid": "u"}
SMALL: Mapping[str, list[Value]] = {
    "namespaces": [{}],
    "nodes": [{"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "4"}}}],
    "pods": [
        _POD,
        {
            "metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/hold"]},
            "spec": {
                **_POD["spec"],
                "volumes": [
                    {"name": "m", "configMap": {"name": "a"}},
                    {"name": "s", "secret": {"secretName": "a"}},
                    {"name": "e", "emptyDir": {}},
                    {"name": "d", "downwardAPI": {"items": []}},
                    {"name": "p", "persistentVolumeClaim": {"claimName": "a"}},
                ],
                "containers": [
                    {
                        **_CONTAINER,
                        "env": [{"name": "A", "value": "b"}],
                        "ports": [{"containerPort": 80, "name": "http"}],
                        "volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "x"}],
                        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                    }
                ],
                "initContainers": [{**_CONTAINER, "name": "i"}],
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
                "securityContext": {"runAsUser": 1000},
            },
        },
    ],
    "services": [
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}},
        {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}},
    ],
    "endpoints": [{"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}],
    "endpointslices.discovery.k8s.io": [
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": 80}],
        }
    ],
    "secrets": [{"type": "Opaque", "data": {"k": "dg=="}, "stringData": {"a": "b"}}],
    "configmaps": [{"data": {"k": "v"}, "binaryData": {"b": "dg=="}}],
    "events": [{"involvedObject": _INVOLVED, "reason": "R", "message": "m", "type": "Normal"}],
    "events.events.k8s.io": [{"regarding": _INVOLVED, "reason": "R", "note": "m", "action": "A"}],
    "persistentvolumeclaims": [
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
    ],
    "serviceaccounts": [{"secrets": [{"name": "a"}]}],
    "leases.coordination.k8s.io": [
        {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 1}}
    ],
    "podgroups.scheduler.tensorstack.dev": [{"spec": {"minMember": 2, "queue": "default"}}],
    "queues.scheduler.tensorstack.dev": [{"spec": {"quota": {"requests.cpu": 4}, "priority": 1}}],
    "tensorboards.tensorstack.dev": [{"spec": {"logDir": {"pvc": [{"name": "a"}]}}}],
}
STATUSES: Mapping[str, Value] = {
    "pods": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}
        ],
    },
    "nodes": {
        "capacity": {"cpu": "4", "memory": "8Gi"},
        "allocatable": {"cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    },
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    "services": {"loadBalancer": {}},
}


@cache
def _of_examples() -> Mapping[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for path in EXAMPLES:
        for obj in yaml.safe_load_all(path.read_text()):
            row = obj and RESOURCES.of_kind(obj["apiVersion"], obj["kind"])
            if row:
                found.setdefault(row.name, []).append(obj)
    return found


def rows() -> list[Served]:
    return list(RESOURCES)


def valid(row: Served, rng: random.Random) -> Value:
    """An object of a kind that is valid, or nearly so, named and placed."""
    known = [*SMALL.get(row.name, ()), *_of_examples().get(row.name, ())]
    obj = grown(row, rng) if not known or rng.random() < 0.2 else deepcopy(rng.choice(known))
    obj = obj if isinstance(obj, dict) else {}
    metadata = obj.get("metadata")
    obj["metadata"] = {**metadata} if isinstance(metadata, dict) else {}
    obj["metadata"]["name"] = rng.choice(NAMES)
    return {"apiVersion": row.resource.api_version, "kind": row.kind, **obj}


def status(row: Served, rng: random.Random) -> Value:
    """A status of a kind."""
    if row.name in STATUSES:
        return deepcopy(STATUSES[row.name])
    schema = row.schema().get("properties", {}).get("status", {})
    return grow(schema, rng, _DEPTH)


def grown(row: Served, rng: random.Random) -> Value:
    """An object that keeps to its kind's schema, if to little else."""
    obj = grow(row.schema(), rng, _DEPTH)
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


@cache
def _definitions() -> Mapping[str, Value]:
    return {
        **kubernetes_schemas.definitions("core"),
        **kubernetes_schemas.definitions("pod_template"),
    }


def grow(schema: Value, rng: random.Random, depth: int) -> Value:
    """A random value that a schema allows."""
    if not isinstance(schema, dict):
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return grow(_definitions().get(reference.rpartition("/")[2]), rng, depth)
    for word in ("oneOf", "anyOf", "allOf"):
        if schema.get(word) and "type" not in schema:
            return grow(rng.choice(schema[word]), rng, depth)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        return _grow_object(schema, rng, depth)
    if kind == "array":
        count = 0 if depth <= 0 else rng.choice((0, 1, 1, 2))
        return [grow(schema.get("items", {}), rng, depth - 1) for _ in range(count)]
    return rng.choice(_LEAVES.get(kind, _TEXTS))


def _grow_object(schema: Value, rng: random.Random, depth: int) -> Value:
    found: dict[str, Value] = {}
    required = schema.get("required", ())
    for name, below in (schema.get("properties") or {}).items():
        if name in required or (depth > 0 and rng.random() < 0.35):
            found[name] = grow(below, rng, depth - 1)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict) and depth > 0:
        found[rng.choice(_TEXTS)] = grow(extra, rng, depth - 1)
    return found
