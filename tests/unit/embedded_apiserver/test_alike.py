"""What holds for a pod that is like another is what would be found of it alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from trainyard.embedded.apiserver import fieldmanagers
from trainyard.embedded.apiserver.fieldmanagers import Update
from trainyard.embedded.resources import pods
from trainyard.embedded.resources.alike import Lately

Object = dict[str, Any]
_ODD: tuple[Any, ...] = (
    *(None, "", "x", "Bad_Name!", "null", 0, 1, -1, 1.5, True, [], {}, ["x"], [None]),
    *({"name": "x"}, [{"name": "x", "value": "y"}], {"x": None}, "\0", "a" * 70),
)


def _pod() -> Object:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["/bin/true"],
        "env": [
            {"name": "RANK", "value": "0"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "labels": {"a": "b"},
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"},
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": "a-0",
            "subdomain": "a",
            "dnsConfig": {"searches": ["a.default.svc"], "options": [{"name": "ndots"}]},
            "containers": [container, {"name": "other", "image": "busybox"}],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "files", "secret": {"secretName": "a", "defaultMode": 256}},
                {"name": "texts", "configMap": {"name": "a", "optional": True}},
            ],
        },
    }


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from _paths(child, (*path, key))


def _variants() -> Iterator[tuple[str, Object]]:
    """The pod with one value changed, taken away, or with another beside it."""
    for path in _paths(_pod()):
        if path == ("metadata",):
            continue  # whatever is judged has some
        for odd in (*_ODD, "gone", "beside"):
            pod = _pod()
            place: Any = pod
            for key in path[:-1]:
                place = place[key]
            if odd == "gone":
                del place[path[-1]]
            elif odd == "beside" and isinstance(place, dict):
                place[f"{path[-1]}s"] = "x"
            elif odd != "beside":
                place[path[-1]] = odd
            yield f"{path} {odd!r}", pod
    pod = _pod()
    variables = pod["spec"]["containers"][0]["env"]
    variables[1] = {"name": [variables[1]], "value": "x"}
    yield "a variable whose name is a list with what stood there", pod


def _judged(pod: Object) -> tuple[Any, ...]:
    obj, *others = pods.SERVED.judge(copy.deepcopy(pod), None)
    return (obj, *map(list, others))


def _owned(pod: Object) -> list[Any]:
    pod = {**_judged(pod)[0], "apiVersion": "v1", "kind": "Pod"}
    pods.SERVED.prepare_create(pod, lambda: ())
    Update("somebody", pods.SERVED).record(pod, None)
    return [entry["fieldsV1"] for entry in pod["metadata"]["managedFields"]]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What `_forget` is to be given; in the end all is as it was."""
    _forget(monkeypatch)
    return monkeypatch


def _forget(known: pytest.MonkeyPatch) -> None:
    known.setattr(pods, "_FLAWLESS", Lately())
    known.setattr(fieldmanagers, "_OWNED", Lately())


def test_a_pod_is_judged_the_same_after_one_that_is_alike(known: pytest.MonkeyPatch) -> None:
    refused = accepted = 0
    for name, pod in _variants():
        _forget(known)
        alone = _judged(pod)
        assert _judged(pod) == alone, f"{name} again"
        _forget(known)
        assert not any(_judged(_pod())[1:])
        assert _judged(pod) == alone, name
        accepted, refused = accepted + (not any(alone[1:])), refused + any(alone[1:])
    assert accepted > 100
    assert refused > 500


def test_who_makes_a_pod_owns_the_same_after_one_that_is_alike(known: pytest.MonkeyPatch) -> None:
    whole = [(name, pod) for name, pod in _variants() if not any(_judged(pod)[1:4])]
    assert len(whole) > 100
    for name, pod in whole:
        _forget(known)
        alone = _owned(pod)
        _forget(known)
        _owned(_pod())
        assert _owned(pod) == alone, name


def test_pods_that_differ_in_names_and_values_are_alike() -> None:
    one, other = _pod(), _pod()
    other["metadata"]["name"] = "b"
    other["spec"]["hostname"] = "a-1"
    other["spec"]["subdomain"] = "b"
    other["spec"]["dnsConfig"]["searches"][0] = "b.default.svc"
    other["spec"]["volumes"][1]["secret"]["secretName"] = "b"
    other["spec"]["volumes"][2]["configMap"]["name"] = "b"
    other["spec"]["containers"][0]["env"][0]["value"] = "1"
    assert pods.SERVED.alike(one) == pods.SERVED.alike(other) is not None


def test_what_is_remembered_has_a_bound() -> None:
    lately: Lately[int] = Lately()
    for number in range(1000):
        lately.keep(str(number).encode(), number)
    lately.keep(b"x" * (1 << 20), 1)
    assert lately.get(b"999") == 999
    assert lately.get(b"0") is None
    assert lately.get(b"x" * (1 << 20)) is None
    assert lately.get(None) is None
