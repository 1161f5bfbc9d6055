"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.embedded.apiserver.patch.patch_formats import (
    json_patch,
    merge_patch,
    strategic_merge_patch,
)
from trainyard.kube.errors import ApiError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_rfc_7386(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/b"}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        (
            {"a": {"b": 1}},
            [{"op": "copy", "from": "/a", "path": "/c"}],
            {"a": {"b": 1}, "c": {"b": 1}},
        ),
        ({"a/b": {"m~n": 1}}, [{"op": "test", "path": "/a~1b/m~0n", "value": 1}], None),
    ],
)
def test_json_patch_examples(target: Any, operations: Any, expected: Any) -> None:
    before = deepcopy(target)
    assert json_patch(target, operations) == (before if expected is None else expected)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/absent"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "a", "value": 1},
    ],
    ids=str,
)
def test_json_patch_refuses_what_cannot_be_done(operation: Any) -> None:
    with pytest.raises(ApiError, match="JSON patch") as refused:
        json_patch({"a": 1, "list": []}, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "dance", "path": "/a"},
        {"op": ["add"], "path": "/a"},
        {"path": "/a"},
        {"op": "add", "path": "/a"},
        {"op": "move", "path": "/a"},
        {"op": "remove"},
        {"op": "add", "path": 1, "value": 1},
        "remove",
        None,
    ],
    ids=str,
)
def test_json_patch_refuses_what_is_no_operation_before_any_is_done(operation: Any) -> None:
    target = {"a": 1}
    with pytest.raises(ApiError, match="invalid operation") as refused:
        json_patch(target, [{"op": "remove", "path": "/a"}, operation])
    assert (refused.value.code, target) == (400, {"a": 1})


CONTAINERS = [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "image": "2"}]},
            {"containers": [{**CONTAINERS[0], "image": "2"}, {"name": "b"}]},
        ),
        (
            {"containers": CONTAINERS},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
        ),
        (
            {"containers": CONTAINERS},
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "containers": [{"name": "c"}],
                "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
            },
            {"containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]},
        ),
        (
            {"finalizers": ["a", "b"]},
            {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b", "c"]},
        ),
        ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
        ({"x": {"a": 1, "b": 2}}, {"x": {"$patch": "replace", "c": 3}}, {"x": {"c": 3}}),
        ({"x": {"a": 1}}, {"x": {"$patch": "delete"}}, {}),
        (
            {"v": {"emptyDir": {}, "name": "n"}},
            {"v": {"$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}},
            {"v": {"name": "n", "hostPath": {"path": "/"}}},
        ),
        (
            {"ports": [{"containerPort": 1, "name": "x"}]},
            {"ports": [{"containerPort": 2}]},
            {"ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2}]},
        ),
        ({"a": 1}, {"a": None, "b": {"c": 1}}, {"b": {"c": 1}}),
    ],
)
def test_strategic_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    assert strategic_merge_patch(deepcopy(target), patch) == expected


@given(JSON, JSON)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(deepcopy(target), deepcopy(patch))
    assert merge_patch(deepcopy(once), deepcopy(patch)) == once


@given(JSON, st.lists(JSON, max_size=3))
def test_any_json_patch_ends_in_a_result_or_a_refusal(target: Any, operations: Any) -> None:
    with suppress(ApiError):
        json_patch(deepcopy(target), operations)
