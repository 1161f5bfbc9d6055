"""What may be added to a pod that runs: names of its own, and nothing that the pod relies on."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.schema.rules.pod_spec_rules import pod, pod_spec

PLAIN = {"name": "e", "image": "i"}
SPEC = {
    "initContainers": [{"name": "before", "image": "i"}],
    "containers": [{"name": "main", "image": "i"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def found(*added: dict[str, Any], old: dict[str, Any] | None = SPEC) -> list[str]:
    obj = {"metadata": {}, "spec": {**SPEC, "ephemeralContainers": [*added]}}
    return [problem.detail for problem in pod(obj, old)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "main"}, "name: 'main' is another container's name"),
        ({"name": "before"}, "name: 'before' is another container's name"),
        ({"name": ""}, "name: is required"),
        ({"image": ""}, "image: is required"),
        ({"ports": [{"containerPort": 1}]}, "ports: cannot be set"),
        ({"resources": {"limits": {"cpu": "1"}}}, "resources: cannot be set"),
        ({"livenessProbe": {"tcpSocket": {"port": 1}}}, "livenessProbe: cannot be set"),
        ({"lifecycle": {}}, "lifecycle: cannot be set"),
        ({"restartPolicy": "Always"}, "restartPolicy: cannot be set"),
        (
            {"targetContainerName": "mian"},
            "there is no container named 'mian'; did you mean 'main'?",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "y"}]},
            "volumeMounts[0].subPath: cannot be set",
        ),
        ({"volumeMounts": [{"name": "w", "mountPath": "/x"}]}, "there is no volume named 'w'"),
    ],
)
def test_what_may_not_be(changed: dict[str, Any], said: str) -> None:
    (problem,) = found({**PLAIN, **changed})
    assert problem.startswith("spec.ephemeralContainers[0].")
    assert said in problem


def test_what_may_be() -> None:
    whole = {
        **PLAIN,
        "command": ["sh"],
        "resources": {},
        "stdin": True,
        "tty": True,
        "env": [{"name": "A", "value": "b"}],
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
        "targetContainerName": "before",
        "volumeMounts": [{"name": "v", "mountPath": "/x"}],
    }
    assert found(PLAIN, {**whole, "name": "f"}) == []


def test_two_of_a_name() -> None:
    (problem,) = found(PLAIN, PLAIN)
    assert problem.startswith("spec.ephemeralContainers[1].name")


def test_none_in_a_new_pod_or_a_template() -> None:
    assert found(PLAIN, old=None) == [
        "spec.ephemeralContainers: cannot be set when a pod is created"
    ]
    spec = {**SPEC, "ephemeralContainers": [PLAIN]}
    (problem,) = pod_spec(spec, ("spec",), is_template=True)
    assert problem.where == "spec.ephemeralContainers"
