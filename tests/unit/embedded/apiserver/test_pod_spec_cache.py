"""A pod is judged by the cache of valid specs as it is without."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from trainyard.embedded.resources.pod.pod_spec_cache import ValidSpecs, spec_key
from trainyard.embedded.resources.served import pods_resource

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
    obj, *others = pods_resource.SERVED.validate(copy.deepcopy(pod), None)
    return (obj, *map(list, others))


@pytest.fixture
def emptied_cache(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What `_empty_cache` is to be given; in the end all is as it was."""
    _empty_cache(monkeypatch)
    return monkeypatch


def _empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods_resource, "_VALID_SPECS", ValidSpecs())


def test_a_pod_is_judged_the_same_after_one_with_the_same_key(
    emptied_cache: pytest.MonkeyPatch,
) -> None:
    refused = accepted = 0
    for name, pod in _variants():
        _empty_cache(emptied_cache)
        alone = _judged(pod)
        assert _judged(pod) == alone, f"{name} again"
        _empty_cache(emptied_cache)
        assert not any(_judged(_pod())[1:])
        assert _judged(pod) == alone, name
        accepted, refused = accepted + (not any(alone[1:])), refused + any(alone[1:])
    assert accepted > 100
    assert refused > 500


def test_pods_that_differ_in_names_and_values_have_one_key() -> None:
    one, other = _pod(), _pod()
    other["metadata"]["name"] = "b"
    other["spec"]["hostname"] = "a-1"
    other["spec"]["subdomain"] = "b"
    other["spec"]["dnsConfig"]["searches"][0] = "b.default.svc"
    other["spec"]["volumes"][1]["secret"]["secretName"] = "b"
    other["spec"]["volumes"][2]["configMap"]["name"] = "b"
    other["spec"]["containers"][0]["env"][0]["value"] = "1"
    assert spec_key(one) == spec_key(other) is not None


def test_the_cache_has_a_bound() -> None:
    cache = ValidSpecs()
    for number in range(1000):
        cache.add(str(number).encode())
    cache.add(b"x" * (1 << 20))
    assert b"999" in cache
    assert b"0" not in cache
    assert b"x" * (1 << 20) not in cache
    assert None not in cache
