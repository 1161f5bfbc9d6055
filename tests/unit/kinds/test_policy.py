"""The admission policy refuses what admission refuses, pod templates included."""

from __future__ import annotations

from typing import Any

import cel
import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds import immutability_policies
from trainyard.kinds.kind_admission import admit
from trainyard.kinds.kind_registry import JOB_KINDS

ELASTIC = {"enabled": True, "minReplicas": 1, "expectedReplicas": 2, "maxReplicas": 4}


def refusals(kind: str, new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    name = f"immutable-{JOB_KINDS[kind].plural}.batch.tensorstack.dev"
    (found,) = [
        item
        for item in immutability_policies.policies()
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"] == name
    ]
    return [
        rule["message"]
        for rule in found["spec"]["validations"]
        if cel.evaluate(rule["expression"], {"object": new, "oldObject": old}) is not True
    ]


@pytest.mark.parametrize("kind", m.BUILDERS)
def test_pausing_and_resuming_pass(kind: str) -> None:
    old = admit(m.BUILDERS[kind]()).obj
    paused = m.changed(old, "spec.runMode", {"pause": {"enabled": True}})
    assert refusals(kind, paused, old) == []
    assert refusals(kind, old, paused) == []


def test_scaling_passes() -> None:
    old = admit(m.deepspeed(elastic=ELASTIC)).obj
    new = m.changed(old, "spec.elastic.expectedReplicas", 3)
    assert refusals("DeepSpeedJob", new, old) == []


@pytest.mark.parametrize(
    ("kind", "path", "value", "named"),
    [
        (
            "PyTorchTrainingJob",
            "spec.replicaSpecs.0.template.spec.containers.0.image",
            "other",
            "spec.replicaSpecs ",
        ),
        ("DeepSpeedJob", "spec.worker.template.spec.nodeName", "n", "spec.worker "),
        ("DeepSpeedJob", "spec.elastic.maxReplicas", 9, "spec.elastic.maxReplicas "),
        ("ColossalAIJob", "spec.torchConfig.script", ["b.py"], "spec.torchConfig "),
        ("GenericJob", "spec.successRules", [], "spec.successRules "),
        ("GenericJob", "spec.runMode.debug.enabled", True, "spec.runMode.debug "),
        ("GenericJob", "spec.cleanUpPolicy", "All", "spec.cleanUpPolicy "),
    ],
)
def test_everything_else_is_refused(kind: str, path: str, value: Any, named: str) -> None:
    extra = {"elastic": ELASTIC} if kind == "DeepSpeedJob" else {}
    old = admit(m.BUILDERS[kind](**extra)).obj
    new = m.changed(old, path, value)
    assert not admit(new, old).allowed
    (message,) = refusals(kind, new, old)
    assert message.startswith(named)


def test_each_policy_is_bound() -> None:
    items = immutability_policies.policies()
    bound = {i["spec"]["policyName"] for i in items if i["kind"].endswith("Binding")}
    assert bound == {i["metadata"]["name"] for i in items if not i["kind"].endswith("Binding")}
