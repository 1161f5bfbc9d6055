"""Every row of the aggregate; its sum is always the number of replicas wanted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lifecycle.world import World, pytorch


def waiting(reason: str = "ContainerCreating") -> dict[str, Any]:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason}}}],
    }


def status_of(world: World, status: dict[str, Any] | None, node: str = "node") -> World:
    pod = world.pods[world.name("1")]
    if status is None:
        del world.pods[world.name("1")]
        return world
    if node:
        pod["spec"]["nodeName"] = node
    pod["status"] = status
    return world


ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("not scheduled", {"phase": "Pending"}, "", "creating"),
    ("scheduled, nothing started", {"phase": "Pending"}, "node", "pending"),
    ("pulls its image", waiting("ImagePullBackOff"), "node", "pending"),
    (
        "one container of two waits",
        {
            "phase": "Running",
            "containerStatuses": [
                {"name": "main", "state": {"running": {}}},
                {"name": "sidecar", "state": {"waiting": {}}},
            ],
        },
        "node",
        "pending",
    ),
    (
        "runs",
        {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
        "node",
        "running",
    ),
    ("cannot be reached", {"phase": "Unknown"}, "node", "unknown"),
    (
        "exit 0",
        {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 0}}}],
        },
        "node",
        "succeeded",
    ),
]


@pytest.mark.parametrize(
    ("status", "node", "row"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS]
)
def test_rows(status: dict[str, Any], node: str, row: str) -> None:
    world = World(pytorch(workers=2)).settle().run("0")
    status_of(world, status, node).settle()
    expected = {"running": 1, row: 1} if row != "running" else {"running": 2}
    assert world.aggregate == expected


def test_failed_and_deleted_rows() -> None:
    world = World(pytorch(workers=3, policy="Never", run_policy={"cleanUpPolicy": "Unfinished"}))
    world.running().exit("1", 1).settle()
    assert world.aggregate == {"failed": 1, "deleted": 2}


def test_not_observed_yet_is_creating() -> None:
    world = World(pytorch(workers=2)).settle()
    assert world.aggregate == {"creating": 2}


def test_all_seven_counts_are_always_there() -> None:
    world = World(pytorch(workers=2)).settle()
    assert world.status is not None
    assert list(world.status["aggregate"]) == [
        "creating",
        "pending",
        "running",
        "succeeded",
        "failed",
        "unknown",
        "deleted",
    ]


def test_replicas_are_told_with_pod_and_containers() -> None:
    world = World(pytorch(workers=2, policy="Never")).running()
    world.exit("1", 137, reason="OOMKilled").settle()
    assert world.status is not None
    (task,) = world.status["tasks"]
    assert (task["type"], task["restartCount"]) == ("worker", 0)
    assert task["replicas"][1] == {
        "name": world.name("1"),
        "uid": world.pods[world.name("1")]["metadata"]["uid"],
        "phase": "Failed",
        "reason": "OOMKilled",
        "containers": [
            {"name": "main", "state": "Terminated", "exitCode": 137, "reason": "OOMKilled"}
        ],
    }
