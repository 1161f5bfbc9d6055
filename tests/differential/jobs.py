"""Requests about our own kinds, for a server that has our definitions and nothing else of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cases import (
    APPLY,
    GONE,
    MERGE,
    PATCH,
    STRATEGIC,
    Case,
    Object,
    Step,
    changed,
)
from tests.differential.requests import LATEST
from tests.unit.kinds import manifests
from tests.unit.kinds.test_crds import NONSENSE

_BOUNDS = {"enabled": True, "minReplicas": 2, "expectedReplicas": 3, "maxReplicas": 8}
PLAIN = manifests.pytorch()
ELASTIC = manifests.pytorch(torchrunConfig={"enabled": True}, elastic=_BOUNDS)
BASES: dict[str, Object] = {
    "pytorch": PLAIN,
    "deepspeed": manifests.deepspeed(),
    "colossalai": manifests.colossalai(),
    "generic": manifests.generic(),
}
_WORKER = "spec.replicaSpecs.0."
OF_ALL: tuple[Object, ...] = (
    {},
    {"metadata.name": GONE},
    {"metadata.name": "A"},
    {"metadata.name": "a.b"},
    {"metadata.name": "-a"},
    {"metadata.name": "a" * 64},
    {"metadata.name": 1},
    {"metadata": GONE},
    {"metadata.labels": {"a b": "c"}},
    {"metadata.labels": {"a": "b c"}},
    {"metadata.labels": {"a": 1}},
    {"metadata.annotations": {"a b": "c"}},
    {"metadata.annotations": {"a": "x" * 300_000}},
    {"metadata.finalizers": ["example.com/wait"]},
    {"metadata.finalizers": ["a b"]},
    {"metadata.ownerReferences": [{"kind": "Pod"}]},
    {"metadata.namespace": "other"},
    {"metadata.uid": "mine"},
    {"metadata.resourceVersion": "1"},
    {"metadata.unknown": 1},
    {"spec": GONE},
    {"spec": None},
    {"spec": []},
    {"spec": "x"},
    {"spec.unknown": 1},
    {"kind": GONE},
    {"kind": "Pod"},
    {"apiVersion": GONE},
    {"apiVersion": "batch.tensorstack.dev/v2"},
    {"status": {"phase": "Running"}},
    {"status": {"phase": 1}},
    {"spec.runMode": {"pause": {"enabled": True}}},
    {"spec.runMode": {"pause": {"enabled": "yes"}}},
    {"spec.runMode": {"pause": {"enabled": True, "enable": False}}},
    {"spec.scheduler": {"t9kScheduler": {"queue": "a", "priority": 101}}},
    {"spec.scheduler": {"t9kScheduler": {"queue": "a", "Queue": "b"}}},
    {"spec.managedBy": "nobody"},
    {"spec.managedBy": "example.com/other"},
)
OF_PYTORCH: tuple[Object, ...] = (
    {f"{_WORKER}replicas": "2"},
    {f"{_WORKER}replicas": 1.5},
    {f"{_WORKER}replicas": 2.0},
    {f"{_WORKER}replicas": -1},
    {f"{_WORKER}replicas": 1 << 31},
    {f"{_WORKER}restartPolicy": "Sometimes"},
    {f"{_WORKER}restartPolicy": None},
    {f"{_WORKER}template": {"spec": {"containers": {}}}},
    {f"{_WORKER}template": {"spec": {"containers": [{"name": "a", "image": "i"}], "odd": 1}}},
    {"spec.replicaSpecs": {}},
    {"spec.replicaSpecs": None},
    {"spec.runPolicy": {"backoffLimit": -1}},
    {"spec.runPolicy": {"activeDeadlineSeconds": 0}},
    {"spec.runPolicy": {"cleanUpPolicy": "Some"}},
    {"spec.runPolicy": {"podFailurePolicy": {}}},
    {"spec.runPolicy": {"podFailurePolicy": {"rules": [{"action": "Wait"}]}}},
    {"spec.torchrunConfig": {"enabled": True, "rdzvBackend": "zk"}},
    {"spec.torchrunConfig": {"enabled": True, "procPerNode": 2}},
    {"spec.torchrunConfig": {"enabled": True, "enable": False}},
    {"spec.elastic": {**_BOUNDS, "minReplicas": 9}},
    {"spec.elastic": {**_BOUNDS, "expectedReplicas": 1}},
    {"spec.elastic": {**_BOUNDS, "expectedReplicas": 9}},
    {"spec.tensorboardSpec": {"logDir": {"pvc": [{}]}}},
)
UPDATES: tuple[Object, ...] = (
    {},
    {"metadata.labels": {"a": "b"}},
    {"metadata.labels": {"a b": "c"}},
    {"metadata.name": "other"},
    {"metadata.namespace": "other"},
    {"metadata.uid": "other"},
    {"metadata.resourceVersion": GONE},
    {"metadata.resourceVersion": "1"},
    {"metadata.resourceVersion": "x"},
    {"metadata.creationTimestamp": "2020-01-01T00:00:00Z"},
    {"kind": "Pod"},
    {"apiVersion": "batch.tensorstack.dev/v2"},
    {"status": {"phase": "Running"}},
    {"spec.runMode": {"pause": {"enabled": True}}},
    {"spec.runMode": {"debug": {"enabled": True}}},
    {"spec.runPolicy": {"backoffLimit": 1}},
    {"spec.replicaSpecs": GONE},
    {f"{_WORKER}replicas": 7},
    {f"{_WORKER}type": "other"},
    {f"{_WORKER}restartPolicy": "Always"},
    {"spec.elastic.expectedReplicas": 5},
    {"spec.elastic.expectedReplicas": 9},
    {"spec.elastic.minReplicas": 1},
    {"spec.elastic.enabled": False},
    {"spec.torchrunConfig.enabled": False},
    {"spec.managedBy": "example.com/other"},
)
PATCHES: tuple[tuple[Any, str, str], ...] = (
    ({}, MERGE, ""),
    ({"spec": {"runMode": {"pause": {"enabled": True}}}}, MERGE, ""),
    ({"spec": {"runMode": {"pause": {"enabled": "yes"}}}}, MERGE, ""),
    ({"spec": {"elastic": {"expectedReplicas": 4}}}, MERGE, ""),
    ({"spec": {"elastic": {"expectedReplicas": 1}}}, MERGE, ""),
    ({"spec": None}, MERGE, ""),
    ({"metadata": {"resourceVersion": "1"}}, MERGE, ""),
    ([], MERGE, ""),
    ({"metadata": {"labels": {"a": "b"}}}, STRATEGIC, ""),
    ([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], PATCH, ""),
    ([{"op": "test", "path": "/metadata/name", "value": "other"}], PATCH, ""),
    ([{"op": "remove", "path": "/spec/nothing"}], PATCH, ""),
    ([{"op": "jump", "path": "/spec"}], PATCH, ""),
    ({}, PATCH, ""),
    (ELASTIC, APPLY, "?fieldManager=me&force=true"),
    (ELASTIC, APPLY, "?fieldManager=me"),
    (ELASTIC, APPLY, ""),
    ({**ELASTIC, "kind": "Pod"}, APPLY, "?fieldManager=me&force=true"),
    (changed(ELASTIC, {"spec.odd": 1}), APPLY, "?fieldManager=me&force=true"),
    ({"spec": {"odd": 1}}, MERGE, "?fieldValidation=Strict"),
    ({}, "text/plain", ""),
)


def place_of(base: Object) -> str:
    """The collection of its kind."""
    plural = f"{base['kind'].lower()}s"
    return f"/apis/{base['apiVersion']}/namespaces/{{ns}}/{plural}"


def _created() -> Iterator[Case]:
    for name, base in BASES.items():
        for changes in OF_ALL if name == "pytorch" else (OF_ALL[0], {"spec.unknown": 1}):
            yield _create(name, base, changes)
    for changes in OF_PYTORCH:
        yield _create("pytorch", ELASTIC, changes)
    for name, (job, _) in NONSENSE.items():
        yield Case(f"nonsense: {name}", [Step("POST", place_of(job), job)])
    odd = changed(PLAIN, {"spec.unknown": 1})
    for query in ("Strict", "Warn", "Ignore", "Never"):
        path = f"{place_of(PLAIN)}?fieldValidation={query}"
        yield Case(f"fieldValidation={query}", [Step("POST", path, odd)])
    for query in ("dryRun=All", "dryRun=Some", f"fieldManager={'m' * 129}"):
        yield Case(query, [Step("POST", f"{place_of(PLAIN)}?{query}", PLAIN)])
    generated = changed(PLAIN, {"metadata.name": GONE, "metadata.generateName": "a-"})
    yield Case("generateName", [Step("POST", place_of(PLAIN), generated)])
    yield Case("twice", [Step("POST", place_of(PLAIN), PLAIN)] * 2)
    nowhere = place_of(PLAIN).replace("{ns}", "no-such-namespace")
    yield Case("in no namespace", [Step("POST", nowhere, PLAIN)])


def _create(name: str, base: Object, changes: Object) -> Case:
    said = " ".join(f"{field}={str(value)[:40]!r}" for field, value in changes.items())
    return Case(f"{name} {said}", [Step("POST", place_of(base), changed(base, changes))])


def _updated() -> Iterator[Case]:
    path = place_of(ELASTIC)
    here, made = f"{path}/mnist", Step("POST", path, ELASTIC)
    for changes in UPDATES:
        new = changed(ELASTIC, {"metadata.resourceVersion": LATEST, **changes})
        said = " ".join(f"{field}={value!r}" for field, value in changes.items())
        yield Case(f"replaced: {said}", [made, Step("PUT", here, new)])
    for body, kind, query in PATCHES:
        name = f"patched: {kind.partition('/')[2][:11]} {query} {str(body)[:60]}"
        yield Case(name, [made, Step("PATCH", f"{here}{query}", body, kind)])
    yield Case("applied anew", [Step("PATCH", f"{here}?fieldManager=me", ELASTIC, APPLY)])
    yield Case("a PUT creates", [Step("PUT", here, ELASTIC)])
    yield Case("a patch creates", [Step("PATCH", here, {}, MERGE)])
    for status in ({"phase": "Running"}, {"phase": 1}, {"odd": 1}, None, []):
        patch = Step("PATCH", f"{here}/status", {"status": status}, MERGE)
        yield Case(f"status {status}", [made, patch, Step("GET", f"{here}/status")])
    both = changed(ELASTIC, {"metadata.resourceVersion": LATEST, "spec.runPolicy": {"odd": 1}})
    yield Case("status with a spec", [made, Step("PUT", f"{here}/status", both)])


def _scaled() -> Iterator[Case]:
    for name, base in {**BASES, "elastic": ELASTIC}.items():
        path = place_of(base)
        scale = f"{path}/mnist/scale"
        made = Step("POST", path, base)
        yield Case(f"scale of {name}", [made, Step("GET", scale)])
        for replicas in (4, 9, 0, -1, "4", None):
            patch = Step("PATCH", scale, {"spec": {"replicas": replicas}}, MERGE)
            yield Case(f"scale of {name} to {replicas!r}", [made, patch])


def _read_and_deleted() -> Iterator[Case]:
    path = place_of(PLAIN)
    made = Step("POST", path, PLAIN)
    here = f"{path}/mnist"
    yield Case("read", [made, Step("GET", here), Step("GET", path), Step("DELETE", here)])
    yield Case("gone", [Step("GET", here), Step("DELETE", here)])
    for query in (
        *("labelSelector=a%3Db", "labelSelector=a%3D%3D%3D", "fieldSelector=metadata.name%3Dmnist"),
        *(
            "fieldSelector=spec.managedBy%3Da",
            "fieldSelector=%3D",
            "limit=1",
            "limit=x",
            "limit=-1",
        ),
        *("resourceVersion=0", "resourceVersion=x", "continue=x", "resourceVersionMatch=Exact"),
        *("resourceVersion=1&resourceVersionMatch=Sometimes", "timeoutSeconds=x"),
    ):
        yield Case(f"list {query}", [made, Step("GET", f"{path}?{query}")])
    for body in (
        {"preconditions": {"uid": "other"}},
        {"preconditions": {"resourceVersion": "1"}},
        {"propagationPolicy": "Foreground"},
        {"propagationPolicy": "Sometimes"},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {"gracePeriodSeconds": 0},
        {"gracePeriodSeconds": -1},
        {"dryRun": ["All"]},
        {"dryRun": ["Some"]},
        {"kind": "Pod", "apiVersion": "v1"},
    ):
        yield Case(f"deleted {body}", [made, Step("DELETE", here, body), Step("GET", here)])
    yield Case("all deleted", [made, Step("DELETE", path), Step("GET", here)])
    for name, step in {
        "POST at an object": Step("POST", here, PLAIN),
        "PUT at a collection": Step("PUT", path, PLAIN),
        "PATCH at a collection": Step("PATCH", path, {}, MERGE),
        "no body": Step("POST", path),
        "a list": Step("POST", path, []),
        "plain text": Step("POST", path, PLAIN, "text/plain"),
        "no content type": Step("POST", path, PLAIN, ""),
        "YAML": Step("POST", path, PLAIN, "application/yaml"),
        "another kind": Step("POST", path, BASES["generic"]),
        "no such version": Step("GET", path.replace("v1beta1", "v2")),
        "no such resource": Step("GET", f"{path}x"),
        "no such subresource": Step("GET", f"{here}/odd"),
    }.items():
        yield Case(name, [step])


CASES = [*_created(), *_updated(), *_scaled(), *_read_and_deleted()]
