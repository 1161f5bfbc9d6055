"""Our cut of the official pod schema refuses whatever the official one refuses."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib.resources import files

import jsonschema_rs
import pytest
from tests.unit.kinds import manifests as m
from tests.unit.kinds.mutation import mutate

from trainyard.kinds.kind_admission import check
from trainyard.schema import kubernetes_schemas


@cache
def official() -> jsonschema_rs.Draft202012Validator:
    root = files("kubernetes_validate") / "kubernetes-json-schema"
    versions = [d.name for d in root.iterdir() if d.name.endswith("-local-strict")]
    newest = max(versions, key=lambda name: [int(n) for n in name[1:].split("-")[0].split(".")])
    schema = json.loads((root / newest / "_definitions.json").read_text())
    schema["$ref"] = "#/$defs/io.k8s.api.core.v1.PodTemplateSpec"
    return jsonschema_rs.Draft202012Validator(schema)


RICH = m.template(
    m.container(
        "main",
        command=["a"],
        args=["b"],
        env=[
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        ],
        envFrom=[{"secretRef": {"name": "s"}}],
        ports=[{"containerPort": 80, "protocol": "TCP"}],
        resources={"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}],
        readinessProbe={"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
        lifecycle={"preStop": {"exec": {"command": ["a"]}}},
        securityContext={"runAsUser": 0, "capabilities": {"add": ["A"]}},
    ),
    volumes=[
        {"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
        {"name": "w", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ],
    tolerations=[{"key": "a", "operator": "Exists"}],
    affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
    initContainers=[m.container("init")],
)


def test_a_rich_template_passes_both() -> None:
    assert kubernetes_schemas.check_part(RICH, "PodTemplateSpec") == []
    assert official().is_valid(RICH)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_the_official_schema_refuses_passes_ours(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(500):
        template = mutate(rng, RICH)
        # An absent list of containers is judged by the rules of each kind.
        if isinstance(template.get("spec"), dict) and "containers" not in template["spec"]:
            continue
        if not official().is_valid(template):
            refused += 1
            assert kubernetes_schemas.check_part(template, "PodTemplateSpec"), template
    assert refused > 100


def test_a_newer_cluster_decides_on_fields_that_we_do_not_know() -> None:
    path = "spec.replicaSpecs.0.template.spec.brandNewField"
    obj = m.changed(m.pytorch(), path, True)
    assert [p.message for p in check(obj).errors] == ["unknown field"]
    assert check(obj, open_templates=True).problems == ()
