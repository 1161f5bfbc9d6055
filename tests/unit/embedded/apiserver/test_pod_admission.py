"""What a cluster's admission adds to a pod, as a kube-apiserver 1.20 showed it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.embedded.apiserver.test_registry import pod
from trainyard.embedded.registry import Registry
from trainyard.kube.errors import Invalid

AWAY = [
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
]


async def created(registry: Registry, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = (await registry.create("pods", pod("p", **spec)))["spec"]
    return made


async def test_a_pod_gets_an_account_a_priority_and_patience(registry: Registry) -> None:
    spec = await created(registry)
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["tolerations"] == AWAY


async def test_what_it_says_of_them_itself_stays(registry: Registry) -> None:
    mine = {"key": AWAY[0]["key"], "operator": "Exists", "effect": "NoExecute"}
    spec = await created(registry, serviceAccount="robot", tolerations=[mine])
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "robot"
    assert spec["tolerations"] == [mine, AWAY[1]]


@pytest.mark.parametrize(("effect", "added"), [("", []), ("NoExecute", []), ("NoSchedule", AWAY)])
async def test_who_tolerates_all_evictions_needs_no_more(
    registry: Registry, effect: str, added: list[Any]
) -> None:
    everything = {"operator": "Exists", "effect": effect}
    spec = await created(registry, tolerations=[everything])
    assert spec["tolerations"] == [everything, *added]


async def test_a_class_has_a_priority_of_its_own(registry: Registry) -> None:
    spec = await created(registry, priorityClassName="system-node-critical")
    assert "priority" not in spec


async def test_a_replacement_keeps_priority_and_patience_but_must_name_the_account(
    registry: Registry,
) -> None:
    await registry.create("pods", pod("p"))
    named = pod("p", serviceAccountName="default", activeDeadlineSeconds=60)["spec"]
    replaced = await registry.update("pods", "default", "p", lambda old: {**old, "spec": {**named}})
    assert replaced["spec"]["priority"] == 0
    assert replaced["spec"]["tolerations"] == AWAY
    with pytest.raises(Invalid, match="serviceAccount"):
        await registry.update(
            "pods",
            "default",
            "p",
            lambda old: {**old, "spec": pod("p", activeDeadlineSeconds=60)["spec"]},
        )
