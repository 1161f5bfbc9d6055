"""Requests that change, read and delete objects, and malformed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cases import (
    APPLY,
    CLAIM,
    COLLECTIONS,
    CONFIG_MAP,
    GONE,
    JSON,
    LEASE,
    MERGE,
    PATCH,
    POD,
    SECRET,
    SERVICE,
    STRATEGIC,
    Case,
    Object,
    Step,
    changed,
)

C = "spec.containers.0."
LATEST = "{resourceVersion}"
"""In a body: that of the answer before."""


def _update(
    kind: str, base: Object, changes: dict[str, Any], before: dict[str, Any] | None = None
) -> Case:
    """An object is created, and then replaced by a version with changes."""
    path, _ = COLLECTIONS[kind]
    made = changed(base, before or {})
    new = changed(made, {"metadata.resourceVersion": LATEST, **changes})
    steps = [Step("POST", path, made), Step("PUT", f"{path}/{base['metadata']['name']}", new)]
    return Case(f"{kind} replaced: {' '.join([*(before or {}), 'then', *changes])}"[:100], steps)


def _patch(kind: str, base: Object, body: Any, content_type: str, query: str = "") -> Case:
    path, _ = COLLECTIONS[kind]
    place = f"{path}/{base['metadata']['name']}{query}"
    name = f"{kind} patched: {content_type[12:30]} {query} {body}"
    return Case(name, [Step("POST", path, base), Step("PATCH", place, body, content_type)])


def _delete(kind: str, base: Object, body: Any = None, query: str = "") -> Case:
    path, _ = COLLECTIONS[kind]
    place = f"{path}/{base['metadata']['name']}{query}"
    name = f"{kind} deleted: {query} {body}"
    return Case(name, [Step("POST", path, base), Step("DELETE", place, body)])


def _get(path: str) -> Case:
    return Case(f"GET {path}", [Step("GET", path)])


def _updates() -> Iterator[Case]:
    for changes, before in (
        ({}, {}),
        ({f"{C}image": "image:2"}, {}),
        ({f"{C}image": ""}, {}),
        ({f"{C}name": "other"}, {}),
        ({f"{C}env": [{"name": "A", "value": "b"}]}, {}),
        ({"spec.containers.1": {"name": "b", "image": "i"}}, {}),
        ({"spec.containers": []}, {}),
        ({"spec.restartPolicy": "Never"}, {}),
        ({"spec.hostname": "h"}, {}),
        ({"spec.activeDeadlineSeconds": 5}, {}),
        ({"spec.activeDeadlineSeconds": 5}, {"spec.activeDeadlineSeconds": 9}),
        ({"spec.activeDeadlineSeconds": 9}, {"spec.activeDeadlineSeconds": 5}),
        ({"spec.activeDeadlineSeconds": GONE}, {"spec.activeDeadlineSeconds": 5}),
        ({"spec.tolerations": [{"key": "a", "operator": "Exists"}]}, {}),
        ({"spec.tolerations": []}, {"spec.tolerations": [{"key": "a", "operator": "Exists"}]}),
        ({"spec.terminationGracePeriodSeconds": 5}, {}),
        ({"spec.volumes": [{"name": "v", "emptyDir": {}}]}, {}),
        ({"metadata.labels": {"a": "b"}}, {}),
        ({"metadata.labels": {"a b": "c"}}, {}),
        ({"metadata.name": "other"}, {}),
        ({"metadata.namespace": "other"}, {}),
        ({"metadata.uid": "other"}, {}),
        ({"metadata.resourceVersion": GONE}, {}),
        ({"metadata.resourceVersion": "1"}, {}),
        ({"metadata.resourceVersion": "0"}, {}),
        ({"metadata.resourceVersion": "x"}, {}),
        ({"metadata.creationTimestamp": "2020-01-01T00:00:00Z"}, {}),
        ({"metadata.generateName": "g-"}, {}),
        ({"kind": "Service"}, {}),
        ({"apiVersion": "v2"}, {}),
        ({"status": {"phase": "Running"}}, {}),
    ):
        yield _update("pod", POD, changes, before)
    old = {"data": {"a": "b"}, "immutable": True}
    for changes, before in (
        ({"data": {"a": "c"}}, {"data": {"a": "b"}}),
        ({"data": {"a": "c"}}, old),
        ({"data": GONE}, old),
        ({"immutable": False}, old),
        ({"immutable": GONE}, old),
        ({"metadata.labels": {"a": "b"}}, old),
        ({"binaryData": {"b": "YQ=="}}, old),
        ({"immutable": True}, {"data": {"a": "b"}}),
        ({"metadata.resourceVersion": GONE}, {}),
        ({"data": {"a b": "c"}}, {}),
    ):
        yield _update("configmap", CONFIG_MAP, changes, before)
    old = {"data": {"a": "YQ=="}, "immutable": True}
    for changes, before in (
        ({"data": {"a": "Yg=="}}, {"data": {"a": "YQ=="}}),
        ({"stringData": {"a": "c"}}, old),
        ({"stringData": {"a": "a"}}, old),
        ({"immutable": GONE}, old),
        ({"type": "other"}, {}),
        ({"type": GONE}, {"type": "mine"}),
        ({"metadata.resourceVersion": GONE}, {}),
    ):
        yield _update("secret", SECRET, changes, before)
    for changes, before in (
        ({"spec.ports": [{"port": 81}]}, {}),
        ({"spec.ports": []}, {}),
        ({"spec.clusterIP": "None"}, {}),
        ({"spec.clusterIP": "10.96.200.200"}, {}),
        ({"spec.clusterIP": ""}, {"spec.clusterIP": "None"}),
        ({"spec.type": "NodePort"}, {}),
        ({"spec.type": "ExternalName", "spec.externalName": "a.b", "spec.clusterIP": ""}, {}),
        ({"spec.selector": {"a": "b"}}, {}),
        ({"metadata.resourceVersion": GONE}, {}),
    ):
        yield _update("service", SERVICE, changes, before)
    for changes in (
        {"spec.resources.requests": {"storage": "2Gi"}},
        {"spec.resources.requests": {"storage": "1Mi"}},
        {"spec.accessModes": ["ReadWriteMany"]},
        {"spec.storageClassName": "other"},
        {"metadata.labels": {"a": "b"}},
        {"metadata.resourceVersion": GONE},
    ):
        yield _update("claim", CLAIM, changes)
    for changes in (
        {"spec.holderIdentity": "b"},
        {"spec.leaseDurationSeconds": 0},
        {"metadata.resourceVersion": GONE},
        {"metadata.resourceVersion": "1"},
    ):
        yield _update("lease", LEASE, changes)


def _patches() -> Iterator[Case]:
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "image:2"}]
    for body, kind in (
        ({"metadata": {"labels": {"a": "b"}}}, MERGE),
        ({"metadata": {"labels": {"a b": "c"}}}, MERGE),
        ({"metadata": {"labels": None}}, MERGE),
        ({"metadata": {"name": "other"}}, MERGE),
        ({"metadata": {"uid": "other"}}, MERGE),
        ({"metadata": {"resourceVersion": "1"}}, MERGE),
        ({"metadata": None}, MERGE),
        ({"spec": None}, MERGE),
        ({"spec": {"containers": None}}, MERGE),
        ({"spec": {"restartPolicy": "Never"}}, MERGE),
        ({"kind": "Service"}, MERGE),
        ({"unknown": 1}, MERGE),
        ([], MERGE),
        ("x", MERGE),
        ({"spec": {"containers": [{"name": "main", "image": "image:2"}]}}, STRATEGIC),
        ({"spec": {"containers": [{"name": "new", "image": "image:2"}]}}, STRATEGIC),
        ({"spec": {"containers": [{"image": "image:2"}]}}, STRATEGIC),
        ({"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}, STRATEGIC),
        ({"spec": {"containers": "x"}}, STRATEGIC),
        ({"$patch": "sometimes"}, STRATEGIC),
        (image, PATCH),
        ([{"op": "test", "path": "/spec/restartPolicy", "value": "Never"}], PATCH),
        ([{"op": "test", "path": "/spec/restartPolicy", "value": "Always"}], PATCH),
        ([{"op": "remove", "path": "/spec/nothing"}], PATCH),
        ([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], PATCH),
        ([{"op": "add", "path": "/metadata/labels/a", "value": "b"}], PATCH),
        ([{"op": "leap", "path": "/spec"}], PATCH),
        ([{"op": "add"}], PATCH),
        ({}, PATCH),
        ([], PATCH),
        ({}, "application/json"),
        ({}, "text/plain"),
    ):
        yield _patch("pod", POD, body, kind)
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    for body, query in (
        ({**head, "data": {"a": "b"}}, ""),
        ({**head, "data": {"a": "b"}}, "?fieldManager=me"),
        ({**head, "data": {"a": "b"}}, f"?fieldManager={'m' * 129}"),
        ({**head, "data": {"a b": "b"}}, "?fieldManager=me"),
        ({"data": {"a": "b"}}, "?fieldManager=me"),
        ({**head, "metadata": {"name": "other"}}, "?fieldManager=me"),
        ({**head, "metadata": {"name": "c", "managedFields": []}}, "?fieldManager=me"),
        ({**head, "metadata": {"name": "c", "uid": "other"}}, "?fieldManager=me"),
        ({**head, "data": {"a": 1}}, "?fieldManager=me"),
        ({**head, "data": {"a": "b"}}, "?fieldManager=me&force=true"),
        ({**head, "data": {"a": "b"}}, "?fieldManager=me&force=maybe"),
    ):
        yield _patch("configmap", CONFIG_MAP, body, APPLY, query)
    yield _patch("configmap", CONFIG_MAP, {"data": {"a": "b"}}, MERGE, "?force=true")
    path, _ = COLLECTIONS["configmap"]
    applied = {**head, "data": {"a": "b"}}
    yield Case(
        "configmap applied that is not there",
        [Step("PATCH", f"{path}/c?fieldManager=me", applied, APPLY)],
    )
    yield Case(
        "configmap applied by two",
        [
            Step("PATCH", f"{path}/c?fieldManager=me", applied, APPLY),
            Step("PATCH", f"{path}/c?fieldManager=you", {**head, "data": {"a": "c"}}, APPLY),
            Step(
                "PATCH", f"{path}/c?fieldManager=you&force=1", {**head, "data": {"a": "c"}}, APPLY
            ),
        ],
    )
    yield Case(
        "configmap applied over what was created",
        [
            Step("POST", f"{path}?fieldManager=me", applied),
            Step("PATCH", f"{path}/c?fieldManager=you", {**head, "data": {"a": "c"}}, APPLY),
        ],
    )
    yield Case(
        "pod patched that is not there", [Step("PATCH", f"{COLLECTIONS['pod'][0]}/p", {}, MERGE)]
    )


def _deletions() -> Iterator[Case]:
    options: list[Any] = [
        {"gracePeriodSeconds": 0},
        {"gracePeriodSeconds": -1},
        {"gracePeriodSeconds": "x"},
        {"propagationPolicy": "Foreground"},
        {"propagationPolicy": "Other"},
        {"orphanDependents": True},
        {"orphanDependents": True, "propagationPolicy": "Orphan"},
        {"preconditions": {"uid": "other"}},
        {"preconditions": {"resourceVersion": "1"}},
        {"dryRun": ["All"]},
        {"dryRun": ["Some"]},
        {"unknown": 1},
        {"kind": "Pod", "apiVersion": "v1"},
        {"kind": "DeleteOptions", "apiVersion": "v1"},
        [],
        "x",
    ]
    for body in options:
        yield _delete("configmap", CONFIG_MAP, body)
    for query in (
        "?gracePeriodSeconds=0",
        "?gracePeriodSeconds=x",
        "?gracePeriodSeconds=-1",
        "?propagationPolicy=Background",
        "?propagationPolicy=Other",
        "?orphanDependents=maybe",
        "?dryRun=All",
        "?dryRun=Some",
        "?dryRun=",
        "?unknown=1",
    ):
        yield _delete("configmap", CONFIG_MAP, None, query)
    for kind, (_, base) in COLLECTIONS.items():
        yield _delete(kind, base)
    for kind, (path, base) in COLLECTIONS.items():
        name = base["metadata"]["name"]
        yield Case(f"{kind} deleted that is not there", [Step("DELETE", f"{path}/{name}")])
        yield Case(f"{kind} read that is not there", [Step("GET", f"{path}/{name}")])
        twice = [Step("POST", path, base), Step("POST", path, base)]
        yield Case(f"{kind} created twice", twice)
        yield Case(f"{kind}s deleted", [Step("POST", path, base), Step("DELETE", path)])
        put = [Step("PUT", f"{path}/{name}", base)]
        yield Case(f"{kind} replaced that is not there", put)


def _reading() -> Iterator[Case]:
    pods, _ = COLLECTIONS["pod"]
    for query in (
        "limit=5",
        "limit=-1",
        "limit=x",
        "continue=x",
        "resourceVersion=0",
        "resourceVersion=x",
        "resourceVersion=-1",
        "resourceVersion=99999999",
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Other",
        "labelSelector=a",
        "labelSelector=a%3Db",
        "labelSelector=a%3D%3D%3Db",
        "labelSelector=a%20in%20(b,c)",
        "labelSelector=a%20in%20b",
        "labelSelector=a%20b",
        "labelSelector=!a",
        "labelSelector=a%3Eb",
        "labelSelector=a%3E1",
        "labelSelector=a%3Dx%20y",
        "labelSelector=%2Fa%3Db",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=metadata.name",
        "fieldSelector=spec.unknown%3Da",
        "fieldSelector=status.phase%3DRunning",
        "fieldSelector=status.phase!%3DRunning",
        "timeoutSeconds=x",
        "timeoutSeconds=1",
        "watch=maybe&timeoutSeconds=1",
        "allowWatchBookmarks=maybe",
        "pretty=true",
        "unknown=1",
    ):
        yield _get(f"{pods}?{query}")
    for path in (
        "/api/v1/nothing",
        "/api/v1/namespaces/{ns}/nothing",
        "/api/v9/pods",
        "/apis/nothing.example.com/v1/things",
        "/apis/batch/v9/jobs",
        "/api",
        "/apis",
        "/api/v1",
        "/version",
        "/healthz",
        "/api/v1/namespaces/{ns}",
        "/api/v1/namespaces/no-such-namespace",
        "/api/v1/namespaces/{ns}/pods/p/log",
        "/api/v1/namespaces/{ns}/pods/p/status",
        "/api/v1/namespaces/{ns}/pods/p/nothing",
        "/api/v1/pods/p",
        "/api/v1/namespaces/{ns}/pods/A%20B",
    ):
        yield _get(path)


def _odd() -> Iterator[Case]:
    pods, _ = COLLECTIONS["pod"]
    for name, step in {
        "a pod in a namespace that is not there": Step(
            "POST", "/api/v1/namespaces/no-such-namespace/pods", POD
        ),
        "a pod in all namespaces": Step("POST", "/api/v1/pods", POD),
        "POST at an object": Step("POST", f"{pods}/p", POD),
        "PUT at a collection": Step("PUT", pods, POD),
        "PATCH at a collection": Step("PATCH", pods, {}, MERGE),
        "DELETE of a whole cluster's pods": Step("DELETE", "/api/v1/pods"),
        "no body": Step("POST", pods),
        "an empty object": Step("POST", pods, {}),
        "a list": Step("POST", pods, []),
        "a text": Step("POST", pods, "x"),
        "another kind": Step("POST", pods, SERVICE),
        "dryRun=All": Step("POST", f"{pods}?dryRun=All", POD),
        "dryRun=Some": Step("POST", f"{pods}?dryRun=Some", POD),
        "fieldManager too long": Step("POST", f"{pods}?fieldManager={'m' * 129}", POD),
        "fieldManager with a line": Step("POST", f"{pods}?fieldManager=a%0Ab", POD),
        "plain text": Step("POST", pods, POD, "text/plain"),
        "no content type": Step("POST", pods, POD, ""),
        "YAML": Step("POST", pods, POD, "application/yaml"),
        "all namespaces deleted": Step("DELETE", "/api/v1/namespaces"),
        "default deleted": Step("DELETE", "/api/v1/namespaces/kube-system?dryRun=All"),
    }.items():
        yield Case(name, [step])
    for name in ("A", "a_b", "a.b", "-a", "a" * 63, "a" * 64, "1a"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        yield Case(f"namespace {name[:20]}", [Step("POST", "/api/v1/namespaces?dryRun=All", body)])


def _status() -> Iterator[Case]:
    pods, _ = COLLECTIONS["pod"]
    for number, status in enumerate(
        (
            {"phase": "Running"},
            {"phase": "Sometimes"},
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {"conditions": [{"type": "a b", "status": "True"}]},
            {"podIP": "1.2.3.4"},
            {"podIP": "x"},
            {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]},
            {"qosClass": "Guaranteed"},
        )
    ):
        steps = [
            Step("POST", pods, POD),
            Step("PATCH", f"{pods}/p/status", {"status": status}, MERGE),
        ]
        yield Case(f"pod's status {number} {' '.join(status)}", steps)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}}
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}}
    for name, place, body in (
        ("binding", "binding", {**binding, "target": {"kind": "Node", "name": "n"}}),
        ("binding to nothing", "binding", {**binding, "target": {}}),
        ("binding to a pod", "binding", {**binding, "target": {"kind": "Pod", "name": "n"}}),
        ("eviction", "eviction", eviction),
    ):
        yield Case(name, [Step("POST", pods, POD), Step("POST", f"{pods}/p/{place}", body)])


def _evictions() -> Iterator[Case]:
    pods, _ = COLLECTIONS["pod"]
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}}
    for name, query, changes in (
        ("of another pod", "", {"metadata": {"name": "q"}}),
        ("of no name", "", {"metadata": {}}),
        ("in another namespace", "", {"metadata": {"name": "p", "namespace": "other"}}),
        ("of another kind", "", {"kind": "Pod", "apiVersion": "v1"}),
        ("of an unknown version", "", {"apiVersion": "policy/v3"}),
        ("without kind", "", {"kind": "", "apiVersion": ""}),
        ("dry", "?dryRun=All", {}),
        ("odd dry", "?dryRun=Some", {}),
        ("dry by its options", "", {"deleteOptions": {"dryRun": ["All"]}}),
        ("at once", "", {"deleteOptions": {"gracePeriodSeconds": 0}}),
        ("of another UID", "", {"deleteOptions": {"preconditions": {"uid": "other"}}}),
        ("of another version", "", {"deleteOptions": {"preconditions": {"resourceVersion": "1"}}}),
        ("of this version", "", {"deleteOptions": {"preconditions": {"resourceVersion": LATEST}}}),
        ("with options of a text", "", {"deleteOptions": "now"}),
    ):
        steps = [
            Step("POST", pods, POD),
            Step("POST", f"{pods}/p/eviction{query}", {**eviction, **changes}),
            Step("GET", f"{pods}/p"),
        ]
        yield Case(f"eviction {name}", steps)
    yield Case("eviction of no pod", [Step("POST", f"{pods}/p/eviction", eviction)])
    yield Case("eviction read", [Step("POST", pods, POD), Step("GET", f"{pods}/p/eviction")])
    nothing = Step("POST", f"{pods}/p/eviction", {})
    yield Case("eviction of nothing", [Step("POST", pods, POD), nothing])


CASES = [*_updates(), *_patches(), *_deletions(), *_reading(), *_odd(), *_status(), *_evictions()]
__all__ = ["CASES", "JSON", "LATEST"]
