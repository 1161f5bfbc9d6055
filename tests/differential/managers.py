"""Writes of several managers to one object, and who then owns what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.asking import Answer
from tests.differential.cases import (
    ACCOUNT,
    APPLY,
    CLAIM,
    COLLECTIONS,
    CONFIG_MAP,
    EVENT,
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

MAPS, PODS, SERVICES = (COLLECTIONS[kind][0] for kind in ("configmap", "pod", "service"))
_MAP = f"{MAPS}/c"
_POD = f"{PODS}/p"
_LAST = "kubectl.kubernetes.io/last-applied-configuration"
_RICH: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "labels": {"a": "b", "c/d": "e"},
        "annotations": {"x": "y"},
        "finalizers": ["example.com/held"],
    },
    "spec": {
        "securityContext": {"fsGroup": 5},
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "s"}],
        "volumes": [
            {"name": "e", "hostPath": {"path": "/a"}},
            {"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        ],
        "initContainers": [{"name": "before", "image": "image:1"}],
        "containers": [
            {
                "name": "main",
                "image": "image:1",
                "args": ["a"],
                "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}],
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B"},
                ],
                "envFrom": [{"configMapRef": {"name": "c", "optional": True}}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "volumeMounts": [{"name": "e", "mountPath": "/é"}],
            },
            {"name": "other", "image": "image:2"},
        ],
    },
}
_FROM = {"fieldRef": {"fieldPath": "metadata.name"}}
_HEAD = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


def _data(**data: str) -> Object:
    return {**_HEAD, "data": data}


def _by(path: str, manager: str, *more: str) -> str:
    return f"{path}?{'&'.join([f'fieldManager={manager}', *more])}"


def _made(body: Object, path: str = MAPS) -> Step:
    return Step("POST", _by(path, "maker"), body)


def _patched(manager: str, body: Any, kind: str = MERGE, path: str = _MAP) -> Step:
    return Step("PATCH", _by(path, manager), body, kind)


def _put(manager: str, body: Object, path: str = _MAP) -> Step:
    return Step("PUT", _by(path, manager), body)


def _applied(manager: str, body: Object, *more: str, path: str = _MAP) -> Step:
    return Step("PATCH", _by(path, manager, *more), body, APPLY)


def _entry(manager: str, fields: Object, operation: str = "Update", **more: Any) -> Object:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def _managed(*entries: Any) -> Object:
    return {"metadata": {"managedFields": list(entries)}}


def _image(name: str) -> Object:
    return {"spec": {"containers": [{"name": "main", "image": name}]}}


def _created() -> Iterator[Case]:
    for name, base in (
        ("a rich pod", _RICH),
        ("a pod", POD),
        ("a pod's node selector", changed(POD, {"spec.nodeSelector": {"a": "b"}})),
        (
            "a pod's reference",
            changed(POD, {"spec.containers.0.env": [{"name": "A", "valueFrom": _FROM}]}),
        ),
        ("a service", changed(SERVICE, {"spec.selector": {"a": "b"}})),
        ("a headless service", changed(SERVICE, {"spec.clusterIP": "None"})),
        ("a configmap", _data(a="b")),
        ("an empty configmap", CONFIG_MAP),
        ("empty labels", changed(CONFIG_MAP, {"metadata.labels": {}, "data": {}})),
        ("a secret", changed(SECRET, {"stringData": {"a": "b"}})),
        ("a claim", CLAIM),
        ("a lease", LEASE),
        ("an event", EVENT),
        ("an account", ACCOUNT),
        ("a generated name", changed(CONFIG_MAP, {"metadata": {"generateName": "g-"}})),
        ("a status", changed(POD, {"status": {"phase": "Running"}})),
    ):
        paths = [path for path, each in COLLECTIONS.values() if each["kind"] == base["kind"]]
        yield Case(f"created: {name}", [_made(base, paths[0])])
    for name, entries in {
        "an empty entry": [{}],
        "none": [],
        "an owner": [_entry("old", {"f:data": {"f:a": {}}})],
        "an owner of something else": [_entry("old", {"f:data": {"f:z": {}}})],
    }.items():
        body = changed(_data(a="b"), {"metadata.managedFields": entries})
        yield Case(f"created with managers: {name}", [_made(body)])


def _updated() -> Iterator[Case]:
    first = _made(changed(_data(a="1", b="1"), {"metadata.labels": {"l": "1"}}))
    yield Case("replaced", [first, _put("other", _data(a="2", c="1"))])
    yield Case("replaced by the same", [first, _put("maker", _data(a="2", c="1"))])
    yield Case("nothing replaced", [first, _put("other", first.body)])
    for name, body, kind in (
        ("merged", {"data": {"a": "2", "b": None, "c": "1"}}, MERGE),
        ("merged strategically", {"data": {"a": "2", "b": None, "c": "1"}}, STRATEGIC),
        ("nothing merged", {"data": {"a": "1"}}, MERGE),
        ("all data gone", {"data": None}, MERGE),
        ("labels gone", {"metadata": {"labels": None}}, MERGE),
        ("another map", {"metadata": {"annotations": {"x": "y"}}}, MERGE),
        ("operations", [{"op": "add", "path": "/data/n", "value": "1"}], PATCH),
        ("a replaced map", [{"op": "replace", "path": "/data", "value": {"n": "1"}}], PATCH),
    ):
        yield Case(f"patched: {name}", [first, _patched("other", body, kind)])
    thirds = [_patched("third", {"data": {"a": "3"}}), _patched("other", {"data": {"d": "1"}})]
    yield Case("patched by two", [first, _patched("other", {"data": {"a": "2"}}), *thirds])
    many = [_patched(f"m{number:02}", {"data": {f"k{number}": "1"}}) for number in range(12)]
    yield Case("patched by many", [first, *many, _patched("m11", {"data": {"k0": "2"}})])
    pod = _made(_RICH, PODS)
    for name, body, kind in (
        ("image", _image("image:9"), STRATEGIC),
        ("a toleration", {"spec": {"tolerations": [*_RICH["spec"]["tolerations"]] * 2}}, MERGE),
        ("a finalizer", {"metadata": {"finalizers": ["example.com/too"]}}, STRATEGIC),
        ("no finalizer", {"metadata": {"finalizers": None}}, MERGE),
    ):
        yield Case(f"pod patched: {name}", [pod, _patched("other", body, kind, _POD)])
    status = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "1.2.3.4"}
    step = _patched("node", {"status": status}, STRATEGIC, f"{_POD}/status")
    again = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    more = _patched("node", again, STRATEGIC, f"{_POD}/status")
    yield Case("pod's status", [_made(POD, PODS), step, more])


def _set() -> Iterator[Case]:
    first = _made(_data(a="1"))
    of_maker = _entry("maker", {"f:data": {".": {}, "f:a": {}}})
    for name, body in {
        "ended": _managed({}),
        "ended with a change": {**_managed({}), "data": {"a": "2"}},
        "none": _managed(),
        "null": {"metadata": {"managedFields": None}},
        "handed over": _managed({**of_maker, "manager": "heir"}),
        "handed over with a change": {
            **_managed({**of_maker, "manager": "heir"}),
            "data": {"a": "2"},
        },
        "to an applier": _managed({**of_maker, "manager": "heir", "operation": "Apply"}),
        "no operation": _managed({**of_maker, "operation": ""}),
        "another operation": _managed({**of_maker, "operation": "Steal"}),
        "no type": _managed({**of_maker, "fieldsType": ""}),
        "another type": _managed({**of_maker, "fieldsType": "FieldsV2"}),
        "no fields": _managed({k: v for k, v in of_maker.items() if k != "fieldsV1"}),
        "odd fields": _managed(_entry("maker", {"data": {}})),
        "odd keys": _managed(_entry("maker", {"f:data": {"k:x": {}}})),
        "two empty ones": _managed({}, {}),
        "the same twice": _managed(of_maker, of_maker),
        "no manager": _managed({**of_maker, "manager": ""}),
    }.items():
        after = _patched("third", {"data": {"z": "1"}})
        yield Case(f"managers set: {name}", [first, _patched("other", body), after])
    apply = [_applied("applier", _data(a="2")), _applied("applier", _data(a="2"), "force=true")]
    yield Case("applied without managers", [first, _patched("other", _managed({})), *apply])
    put = {**_data(a="1"), "metadata": {"name": "c", "managedFields": [{}]}}
    yield Case("replaced without managers", [first, _put("other", put)])


def _applies() -> Iterator[Case]:
    first = _made(_data(a="1", b="1"))
    two = _applied("one", _data(a="2", b="2"))
    yield Case("applied over what was made", [first, two, _applied("one", two.body, "force=1")])
    yield Case(
        "applied the same", [first, _applied("one", first.body), _put("maker", _data(a="5"))]
    )
    mixed = [first, _patched("other", {"data": {"a": "3"}}), two]
    yield Case("applied over two", mixed)
    yield Case("applied another field", [first, _applied("one", _data(z="1"))])
    less = [_applied("one", _data(z="1")), _applied("one", _data(y="1")), _applied("one", _HEAD)]
    yield Case("applied less", [first, *less])
    yield Case("applied an empty map", [first, _applied("one", {**_HEAD, "data": {}})])
    shared = [_applied("one", _data(a="1")), _applied("two", _data(a="1"))]
    yield Case("applied by two", [*shared, _applied("one", _HEAD), _applied("two", _HEAD)])
    yield Case("applied and patched", [*shared, _patched("other", {"data": {"a": "2"}}), shared[0]])
    pod = _made(_RICH, PODS)
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    image = {**head, **_image("image:7")}
    wanted = [_applied("one", image, path=_POD), _applied("one", image, "force=1", path=_POD)]
    back = _patched("other", _image("image:8"), STRATEGIC, _POD)
    yield Case("pod's image applied", [pod, *wanted, back, wanted[0]])
    labels = changed(image, {"metadata.labels": {"a": "z"}})
    yield Case("pod's label and image applied", [pod, _applied("one", labels, path=_POD)])
    made = _applied("one", _RICH, path=_POD)
    fewer = changed(_RICH, {"metadata.labels": {"a": "b"}, "metadata.finalizers": []})
    yield Case("pod applied", [made, made, _applied("one", fewer, path=_POD)])
    both = [_applied("one", SERVICE, path=f"{SERVICES}/s")]
    ports = changed(SERVICE, {"spec.ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]})
    yield Case("service applied", [*both, _applied("two", ports, path=f"{SERVICES}/s")])


def _of_kubectl() -> Iterator[Case]:
    last = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}'
    made = changed(_data(a="1"), {"metadata.annotations": {_LAST: last}})
    client = Step("POST", _by(MAPS, "kubectl-client-side-apply"), made)
    wanted = _data(a="2")
    yield Case("kubectl applies over its own", [client, _applied("kubectl", wanted)])
    yield Case("another applies over kubectl's", [client, _applied("one", wanted)])
    other = _patched("other", {"data": {"a": "3"}})
    yield Case("kubectl applies over another's", [client, other, _applied("kubectl", wanted)])
    more = _patched("other", {"data": {"b": "3"}})
    both = _applied("kubectl", _data(a="2", b="2"))
    yield Case("kubectl applies over its own and another's", [client, more, both])
    for name, text in {"none": "", "no JSON": "{", "a text": '"x"', "no version": "{}"}.items():
        odd = changed(made, {"metadata.annotations": {_LAST: text}})
        step = Step("POST", _by(MAPS, "kubectl-client-side-apply"), odd)
        yield Case(f"kubectl applies over an odd one: {name}", [step, _applied("kubectl", wanted)])


def cases() -> Iterator[Case]:
    """All, each under its own name."""
    yield from _created()
    yield from _updated()
    yield from _set()
    yield from _applies()
    yield from _of_kubectl()


def counted(status: int, told: Any) -> Answer:
    """What was refused and why, or who owns what."""
    if not isinstance(told, dict) or told.get("kind") == "Status":
        answer: Answer = {"code": status, "reason": (told or {}).get("reason", "")}
        if status == 409:
            answer["message"] = told["message"]
            causes = told["details"].get("causes") or []  # a real server's are in any order
            answer["causes"] = sorted(causes, key=lambda cause: (cause["field"], cause["message"]))
        return answer
    return {
        "code": status,
        "owners": [
            {key: value for key, value in entry.items() if key not in ("time", "subresource")}
            for entry in told["metadata"].get("managedFields") or ()
        ],
        "left": told.get("data"),
    }
