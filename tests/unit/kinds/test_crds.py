"""The CustomResourceDefinitions say what the models and the admission say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kinds import judge
from tests.unit.kinds import manifests as m
from tests.unit.kinds.test_accepted import ACCEPTED
from tests.unit.kinds.test_warned import WARNED

from trainyard.kinds.kind_admission import admit
from trainyard.kinds.kind_registry import JOB_KINDS, KINDS
from trainyard.schema import structural_schema

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("tool", ["crds", "pod_schema", "reference"])
def test_generated_files_are_fresh(tool: str) -> None:
    command = [sys.executable, "-m", f"tools.{tool}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema."""
    yield path, schema
    for key, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}.{key}")


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: str) -> None:
    """https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema"""
    allowed = {
        "additionalProperties",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
    for path, node in nodes(KINDS[kind].schema):
        assert set(node) <= allowed, path
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert set(node.get("required", ())) <= set(node.get("properties", ())), path
        keys = node.get("x-kubernetes-list-map-keys", ())
        assert set(keys) <= set(node.get("items", {}).get("required", ())), path


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_can_be_explained(kind: str) -> None:
    for path, node in nodes(KINDS[kind].schema):
        name = path.rsplit(".", 1)[-1]
        if name in ("", "metadata", "items", "additionalProperties") or ".launcher." in path:
            continue
        assert node.get("description", "").endswith((".", ">")), path


def test_transition_rules_are_where_a_server_can_relate_old_and_new() -> None:
    """In a plain list an item has no former self; a server refuses such a definition."""

    def walk(schema: dict[str, Any], related: bool, path: str) -> None:
        for rule in schema.get("x-kubernetes-validations", ()):
            assert related or "oldSelf" not in rule["rule"], path
        for key, child in schema.get("properties", {}).items():
            walk(child, related, f"{path}.{key}")
        if isinstance(schema.get("items"), dict):
            walk(schema["items"], schema.get("x-kubernetes-list-type") == "map", path)

    for kind in KINDS:
        walk(KINDS[kind].schema, True, kind)


def test_names_columns_and_subresources() -> None:
    expected = {
        "PyTorchTrainingJob": ("pytorchtrainingjobs", ["pj"]),
        "DeepSpeedJob": ("deepspeedjobs", ["dj"]),
        "ColossalAIJob": ("colossalaijobs", ["caij"]),
        "GenericJob": ("genericjobs", ["gj"]),
    }
    for kind, (plural, short) in expected.items():
        spec = KINDS[kind].crd["spec"]
        assert spec["names"]["plural"] == plural
        assert spec["names"]["shortNames"] == short
        assert spec["names"]["listKind"] == f"{kind}List"
        (version,) = spec["versions"]
        shown = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
        assert shown == ["Phase", "Running", "Restarts", "Age"]
        assert "status" in version["subresources"]
        assert ("scale" in version["subresources"]) is JOB_KINDS[kind].elastic


@pytest.mark.parametrize("name", [*ACCEPTED, *WARNED])
def test_what_is_accepted_is_not_pruned_and_breaks_no_rule(name: str) -> None:
    obj = ACCEPTED.get(name) or WARNED[name][0]
    assert structural_schema.prune(obj, KINDS[obj["kind"]].schema).unknown == ()
    assert judge.validate(obj) == []
    stored = admit(obj).obj
    assert judge.evaluate(stored) == []
    assert judge.evaluate(stored, stored) == []


@pytest.mark.parametrize("kind", m.BUILDERS)
def test_no_old_spelling_is_pruned(kind: str) -> None:
    """A server that drops ``debug.enable`` starts real training."""
    legacy = KINDS[kind].legacy
    assert legacy is not None
    for path, _ in legacy.paths():
        obj: dict[str, Any] = {"kind": kind, "spec": {}}
        here = obj
        for part in path[:-1]:
            here = here.setdefault(part, {})
        here[path[-1]] = True
        assert structural_schema.prune(obj, KINDS[obj["kind"]].schema).unknown == (), path


def test_unknown_fields_are_pruned_and_named() -> None:
    obj = m.pytorch(replicaSpec=[], runMode={"debug": {"enabledd": True}})
    pruned = structural_schema.prune(obj, KINDS[obj["kind"]].schema)
    assert {p.detail for p in pruned.unknown} == {
        "spec.replicaSpec: unknown field; did you mean 'replicaSpecs'?",
        "spec.runMode.debug.enabledd: unknown field; did you mean 'enabled'?",
    }
    assert pruned.obj["spec"]["runMode"] == {"debug": {}}
    assert "replicaSpec" in obj["spec"]


_NO_CONTAINER = {"spec": {"containers": []}}
NONSENSE = {
    "no types": (m.pytorch(replicaSpecs=[]), "spec.replicaSpecs"),
    "no replicaSpecs": (m.changed(m.generic(), "spec.replicaSpecs", None), "spec"),
    "no template": (
        m.pytorch(replicaSpecs=[{"type": "worker"}]),
        "spec.replicaSpecs[0].template",
    ),
    "no pod": (
        m.changed(m.generic(), "spec.replicaSpecs.0.template", {}),
        "spec.replicaSpecs[0].template.spec",
    ),
    "no container": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.template", _NO_CONTAINER),
        "spec.replicaSpecs[0].template.spec.containers",
    ),
    "no container of a worker": (
        m.changed(m.deepspeed(), "spec.worker.template", _NO_CONTAINER),
        "spec.worker.template.spec.containers",
    ),
    "a type that is no name": (
        m.changed(m.generic(), "spec.replicaSpecs.0.type", "Worker_1"),
        "spec.replicaSpecs[0].type",
    ),
    "a type of another kind": (
        m.changed(m.colossalai(), "spec.replicaSpecs.0.type", "master"),
        "spec.replicaSpecs[0].type",
    ),
    "two masters": (
        m.pytorch(replicaSpecs=[{"type": "master", "template": m.template()}] * 2),
        "spec.replicaSpecs[1]",
    ),
    "no process": (
        m.pytorch(torchrunConfig={"enabled": True, "procPerNode": "0"}),
        "spec.torchrunConfig.procPerNode",
    ),
    "a name that is no host name": (m.changed(m.pytorch(), "metadata.name", "1.digits"), ""),
    "a name that is too long": (m.changed(m.pytorch(), "metadata.name", "n" * 64), ""),
}


@pytest.mark.parametrize(("obj", "place"), NONSENSE.values(), ids=NONSENSE)
def test_a_server_without_us_refuses_nonsense(obj: dict[str, Any], place: str) -> None:
    assert not admit(obj).allowed
    problems = [*judge.validate(obj), *judge.evaluate(obj)]
    assert any(problem.where.startswith(place) for problem in problems), problems


CHANGES = {
    "replicas": ("spec.replicaSpecs.0.replicas", 7),
    "type": ("spec.replicaSpecs.0.type", "other"),
    "policy": ("spec.runPolicy", {"backoffLimit": 1}),
    "torchrun": ("spec.torchrunConfig.enabled", False),
    "minimum": ("spec.elastic.minReplicas", 1),
    "elastic off": ("spec.elastic.enabled", False),
    "debug": ("spec.runMode.debug", {"enabled": True}),
    "resumeSpecs": ("spec.runMode.pause.resumeSpecs", [{"type": "worker"}]),
    "over the maximum": ("spec.elastic.expectedReplicas", 9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_server_without_us_refuses_what_admission_refuses(name: str) -> None:
    elastic = {"enabled": True, "minReplicas": 2, "expectedReplicas": 4, "maxReplicas": 8}
    stored = admit(m.pytorch(torchrunConfig={"enabled": True}, elastic=elastic)).obj
    changed = m.changed(stored, *CHANGES[name])
    assert not admit(changed, stored).allowed
    assert judge.evaluate(changed, stored)


def test_a_server_without_us_lets_pause_and_size_change() -> None:
    elastic = {"enabled": True, "minReplicas": 2, "expectedReplicas": 4, "maxReplicas": 8}
    stored = admit(m.pytorch(torchrunConfig={"enabled": True}, elastic=elastic)).obj
    changed = m.changed(stored, "spec.runMode", {"pause": {"enabled": True}})
    changed = m.changed(changed, "spec.elastic.expectedReplicas", 5)
    assert judge.evaluate(changed, stored) == []


def test_two_runs_break_a_rule() -> None:
    obj = m.deepspeed(config={"run": {"python": ["a"], "module": ["b"]}})
    assert [p.where for p in judge.evaluate(obj)] == ["spec.config.run"]


def test_a_server_without_us_refuses_contradicting_spellings() -> None:
    """It could not tell which of the two is newer, nor could the controller."""
    stored = m.pytorch(runMode={"pause": {"enable": True}})
    both = m.changed(stored, "spec.runMode.pause.enabled", False)
    assert [p.where for p in judge.evaluate(both, stored)] == ["spec.runMode.pause"]
    same = m.changed(stored, "spec.runMode.pause.enabled", True)
    assert judge.evaluate(same, stored) == []
