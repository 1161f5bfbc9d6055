"""Whether a node takes a pod: cordon, taints, labels and names."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.embedded.scheduler import node_filters

Object = dict[str, Any]
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
NODE: Object = {"metadata": {"name": "here", "labels": {"zone": "a", "gpus": "4"}}, "spec": {}}


def rejection(spec: Object, *, is_strict: bool = True, **node: Any) -> str:
    return node_filters.rejection_reason(
        {"spec": spec}, {**NODE, "spec": node}, is_strict=is_strict
    )


def wanted(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"affinity": {"nodeAffinity": required}}


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "b"}, True),
        ({"key": "team", "operator": "Equal", "value": "b", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "c"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "value": "b", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations(toleration: Object, tolerates: bool) -> None:
    text = rejection({"tolerations": [toleration]}, taints=[TAINT])
    assert bool(text) is not tolerates


@pytest.mark.parametrize(("effect", "repels"), [("NoExecute", True), ("PreferNoSchedule", False)])
def test_effects(effect: str, repels: bool) -> None:
    text = rejection({}, taints=[{"key": "k", "effect": effect}])
    assert text == ("0/1 nodes are available: 1 node(s) had untolerated taint {k: }." * repels)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (wanted(label("zone", "In", "b", "a")), True),
        (wanted(label("zone", "NotIn", "a")), False),
        (wanted(label("rack", "NotIn", "a")), True),
        (wanted(label("rack", "Exists")), False),
        (wanted(label("rack", "DoesNotExist")), True),
        (wanted(label("gpus", "Gt", "3")), True),
        (wanted(label("gpus", "Lt", "4")), False),
        (wanted(label("zone", "Gt", "3")), False),
        (wanted(label("zone", "In", "b"), label("gpus", "Exists")), True),
        (wanted({}), False),
        (
            wanted(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}
            ),
            True,
        ),
        ({**wanted(label("zone", "In", "a")), "nodeSelector": {"zone": "b"}}, False),
    ],
)
def test_labels(spec: Object, fits: bool) -> None:
    assert bool(rejection(spec)) is not fits
    assert not rejection(spec, is_strict=False)


def test_cordon_comes_first() -> None:
    assert "were unschedulable" in rejection({}, unschedulable=True, taints=[TAINT])
