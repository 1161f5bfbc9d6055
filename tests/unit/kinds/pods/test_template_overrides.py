"""Whatever a template says is in its pods, or is told to be ignored: every field that Kubernetes
has in a PodTemplateSpec, in each kind, under each scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from tests.unit.kinds import manifests as m

from trainyard.kinds.generic import OWN_LABELS
from trainyard.kinds.kind_admission import check
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job import Job
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.workload import ReplicaKey
from trainyard.schema import kubernetes_schemas
from trainyard.schema.problems import Path, format_path

SCHEMAS = kubernetes_schemas.definitions("pod_template")
OURS = [
    *(value for name, value in vars(labels).items() if name.isupper() and isinstance(value, str)),
    *OWN_LABELS,
    "scheduling.k8s.io/group-name",
    "scheduling.x-k8s.io/pod-group",
]
"""Among them all keys that a controller has ever set on pods."""
TRAINER = "main"
DEEPEST = 5
EXAMPLES = 300 if os.environ.get("TRAINYARD_SOAK") else 20
WHOLE = ("PodTemplateSpec", "ObjectMeta", "PodSpec", "Container")
"""Definitions of which all fields are drawn, but a few; of others a few are."""

JOBS: dict[str, tuple[dict[str, Any], Path]] = {
    "plain": (m.pytorch(), ("spec", "replicaSpecs", 0, "template")),
    "torchrun": (
        m.pytorch(torchrunConfig={"enabled": True}),
        ("spec", "replicaSpecs", 0, "template"),
    ),
    "in a queue": (
        m.pytorch(scheduler={"t9kScheduler": {"queue": "q", "priority": 3}}),
        ("spec", "replicaSpecs", 0, "template"),
    ),
    "with checks, in place": (
        m.pytorch(runPolicy={"restartMode": "InPlace", "nodeCheck": {"enabled": True}}),
        ("spec", "replicaSpecs", 0, "template"),
    ),
    "deepspeed": (m.deepspeed(), ("spec", "worker", "template")),
    "elastic": (
        m.deepspeed(elastic={"enabled": True, "minReplicas": 1, "maxReplicas": 2}),
        ("spec", "worker", "template"),
    ),
    "colossalai": (m.colossalai(), ("spec", "replicaSpecs", 1, "template")),
    "launcher": (m.colossalai(), ("spec", "replicaSpecs", 0, "template")),
    "generic": (m.generic(), ("spec", "replicaSpecs", 1, "template")),
    "with services": (
        m.generic(service={"ports": [{"name": "a", "port": 1}]}),
        ("spec", "replicaSpecs", 1, "template"),
    ),
}
TRAINERS = {"deepspeed": "worker", "elastic": "worker", "colossalai": "worker"}


KEYS = st.sampled_from([*OURS, "team", "example.com/a"])
PLAIN = {
    "boolean": st.booleans(),
    "integer": st.integers(1, 9),
    "number": st.integers(1, 9),
    "string": st.sampled_from(["a", "Never", "Always", "mine"]),
}
FORMATS = {
    "quantity": st.sampled_from(["1", "2Gi"]),
    "date-time": st.just("2024-01-02T03:04:05Z"),
    "micro-time": st.just("2024-01-02T03:04:05.000000Z"),
}


def sample(schema: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    name = schema.get("$ref", "")
    schema = SCHEMAS.get(name, schema)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "items" in schema:
        items = st.deferred(lambda: sample(schema["items"], depth + 1))
        return st.lists(items, min_size=1, max_size=2)
    if "properties" in schema:
        return fields_of(name, schema, depth)
    if isinstance(extra := schema.get("additionalProperties"), dict):
        return st.dictionaries(KEYS, st.deferred(lambda: sample(extra, depth + 1)), max_size=4)
    kind = "integer" if "x-kubernetes-int-or-string" in schema else schema.get("type")
    return FORMATS.get(schema.get("format", ""), PLAIN.get(kind, st.just({})))


@st.composite
def fields_of(draw: DrawFn, name: str, schema: Any, depth: int) -> dict[str, Any]:
    names = sorted(schema["properties"])
    some = set(draw(st.lists(st.sampled_from(names), max_size=3)))
    chosen = set(names) - some if name in WHOLE else some if depth < DEEPEST else set()
    chosen |= set(schema.get("required", ()))
    return {each: draw(sample(schema["properties"][each], depth + 1)) for each in sorted(chosen)}


def with_trainer(template: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The template, whose containers have different names, the one that trains among them."""
    spec = dict(template.get("spec") or {})
    others = [{**c, "name": f"side-{n}"} for n, c in enumerate((spec.get("containers") or ())[1:])]
    first = {**next(iter(spec.get("containers") or ()), {}), "name": trainer, "image": "i"}
    before = [{**c, "name": f"init-{n}"} for n, c in enumerate(spec.get("initContainers") or ())]
    found = {**spec, "containers": [{**first, "args": first.get("args") or ["a.py"]}, *others]}
    return {**template, "spec": {**found, **({"initContainers": before} if before else {})}}


def lost(wanted: Any, got: Any, path: Path = ()) -> Iterator[Path]:
    """Places of a template that its pod does not have so; nothing and null are the same."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key, value in wanted.items():
            if value is not None and not (value in ("", [], {}) and not got.get(key)):
                yield from lost(value, got.get(key), (*path, key))
    elif isinstance(wanted, list) and isinstance(got, list):
        for index, item in enumerate(wanted):
            if item in got:
                continue
            name = item.get("name") if isinstance(item, dict) else None
            same = [each for each in got if name and each.get("name") == name]
            if len(same) == 1:
                yield from lost(item, same[0], (*path, index))
            else:
                yield (*path, index)
    elif wanted != got:
        yield path


def untold(name: str, template: dict[str, Any], backend: GangBackend) -> list[str]:
    """What pods of a job with this template do not have of it although nobody says so."""
    obj, where = JOBS[name]
    obj = m.changed(obj, ".".join(map(str, where)), template)
    obj["metadata"]["annotations"] = {labels.WORKING_DIR: "/work"}
    problems = check(obj).problems
    messages = {p.path[len(where) :] for p in problems if p.path[: len(where)] == where}
    job: Job = KINDS[obj["kind"]].model.model_validate(obj)  # type: ignore[assignment]
    workload = KINDS[obj["kind"]].describe(job, Settings(gang_backend=backend))
    replica_type = (
        "worker" if where[1] == "worker" else obj["spec"]["replicaSpecs"][where[2]]["type"]
    )
    (shape,) = (each for each in workload.types if each.name == replica_type)
    is_same = template["spec"].get("restartPolicy") == shape.policy
    found = set()
    for ordinal in {0, shape.replicas - 1}:
        pod = workload.build_pod(ReplicaKey(replica_type, ordinal), 1, pod_group="g", resumed=False)
        for path in lost(template, {"metadata": pod["metadata"], "spec": pod["spec"]}):
            by_gang = (
                f"{replica_type}: {format_path(path[:n])}: " for n in range(2, len(path) + 1)
            )
            is_told = any(path[: len(each)] == each for each in messages if each) or any(
                text in "\n".join(workload.warnings) for text in by_gang
            )
            if not is_told and not (is_same and path == ("spec", "restartPolicy")):
                found.add(f"{path} of {replica_type}-{ordinal}")
    return sorted(found)


@st.composite
def templates(draw: DrawFn, trainer: str) -> dict[str, Any]:
    return with_trainer(draw(sample({"$ref": "PodTemplateSpec"})), trainer)


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_any_template_is_in_its_pods_but_for_what_is_told(name: str, data: st.DataObject) -> None:
    template = data.draw(templates(TRAINERS.get(name, TRAINER)))
    backend = data.draw(st.sampled_from(list(GangBackend)))
    assert untold(name, template, backend) == []
