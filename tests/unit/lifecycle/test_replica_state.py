"""What a pod says about its replica; decoding of pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, elastic, generic, pytorch
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.kube.resources import PODS, SECRETS
from trainyard.lifecycle import Owned, Pod
from trainyard.lifecycle.observed import Container, observed_resources
from trainyard.lifecycle.replica_state import Exit, exit_of, is_disruption


def ended(name: str, code: int, second: int | None = None, **more: Any) -> dict[str, Any]:
    state: dict[str, Any] = {"exitCode": code, **more}
    if second is not None:
        state["finishedAt"] = f"2026-01-01T12:00:{second:02d}Z"
    return {"name": name, "state": {"terminated": state}}


def pod(phase: str = "Running", *containers: dict[str, Any], **status: Any) -> Pod:
    meta = {"name": "p", "uid": "u", **status.pop("metadata", {})}
    body = {"phase": phase, "containerStatuses": list(containers), **status}
    return Pod.decode({"metadata": meta, "spec": status.pop("spec", {}), "status": body})


RUNNING = {"name": "side", "state": {"running": {}}}


def deleting(second: int, grace: int) -> dict[str, Any]:
    return {
        "deletionTimestamp": f"2026-01-01T12:00:{second:02d}Z",
        "deletionGracePeriodSeconds": grace,
    }


CASES: list[tuple[str, Pod, str | None, tuple[int | None, str, bool] | None]] = [
    ("runs", pod("Running", RUNNING), "side", None),
    ("pending", pod("Pending"), None, None),
    ("main ended well", pod("Running", ended("m", 0), RUNNING), "m", (0, "Error", False)),
    ("main failed", pod("Running", ended("m", 3), RUNNING), "m", (3, "Error", False)),
    ("main goes on", pod("Running", ended("m", 3), RUNNING), "side", None),
    ("pod decides and runs", pod("Running", ended("m", 3), RUNNING), None, None),
    ("succeeded", pod("Succeeded", ended("m", 0, 5)), None, (0, "", False)),
    ("failed", pod("Failed", ended("m", 7, reason="Error")), None, (7, "Error", False)),
    (
        "main well, pod failed",
        pod("Failed", ended("m", 0), ended("s", 1)),
        "m",
        (0, "Error", False),
    ),
    (
        "first failure tells",
        pod("Failed", ended("a", 1, 9), ended("b", 2, 3), ended("c", 0, 1), ended("d", 4)),
        None,
        (2, "Error", False),
    ),
    ("evicted", pod("Failed", reason="Evicted"), "m", (None, "Evicted", True)),
    (
        "evicted after its end",
        pod("Failed", ended("m", 137), reason="Evicted"),
        "m",
        (137, "Evicted", True),
    ),
    (
        "deadline of the user",
        pod("Failed", reason="DeadlineExceeded"),
        None,
        (None, "DeadlineExceeded", False),
    ),
    ("no reason at all", pod("Failed"), None, (None, "Error", False)),
    (
        "ended before deletion",
        pod("Failed", ended("m", 1, 9), metadata=deleting(40, 30)),
        "m",
        (1, "Error", False),
    ),
    ("ended at deletion", pod("Failed", ended("m", 1, 10), metadata=deleting(40, 30)), "m", None),
    (
        "ended after deletion",
        pod("Succeeded", ended("m", 0, 11), metadata=deleting(40, 30)),
        "m",
        None,
    ),
    (
        "deletion without grace",
        pod("Failed", ended("m", 1, 9), metadata=deleting(10, 0)),
        "m",
        (1, "Error", False),
    ),
    ("end unknown", pod("Failed", ended("m", 1), metadata=deleting(40, 30)), "m", None),
]


@pytest.mark.parametrize(
    ("pod_", "main", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_ends(pod_: Pod, main: str | None, expected: tuple[int | None, str, bool] | None) -> None:
    found = exit_of(pod_, main)
    assert (found and (found.code, found.reason, found.free)) == expected


def test_a_failed_pod_with_a_reason_keeps_code_time_and_words_of_its_container() -> None:
    failed = ended("m", 137, 5, message="last words")
    found = exit_of(pod("Failed", failed, reason="Evicted"), None)
    assert found is not None
    assert (found.code, found.reason, found.message) == (137, "Evicted", "last words")
    assert found.at is not None
    end = exit_of(pod("Failed", failed, reason="Evicted", message="The node was low."), None)
    assert end is not None
    assert end.message == "The node was low."
    bare = exit_of(pod("Failed", reason="Evicted"), None)
    assert bare == Exit(None, "Evicted", "", None, True)


def test_a_success_without_times_is_one() -> None:
    assert exit_of(pod("Succeeded", ended("m", 0)), None) == Exit(code=0)


def test_an_init_container_that_fails_fails_the_replica() -> None:
    found = pod(
        "Failed",
        {"name": "m", "state": {"waiting": {"reason": "PodInitializing"}}},
        initContainerStatuses=[ended("init", 5, 1, message="no such host")],
    )
    end = exit_of(found, "m")
    at = found.containers[0].ended
    assert end == Exit(5, "Error", "no such host", at, init_container="init")


def test_an_init_container_that_fails_is_named() -> None:
    world = World(pytorch(policy="Never")).running()
    status = world.pods[world.name("1")]["status"]
    status |= {"phase": "Failed", "initContainerStatuses": [ended("prep", 7, 1, message="no net")]}
    world.settle()
    text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
    assert text.endswith("exited with error code 7 (init container prep): no net")


def test_an_init_container_that_ends_with_its_pod_after_the_end_of_the_job_is_named() -> None:
    world = World(pytorch(run_policy={"cleanUpPolicy": "None"})).running()
    world.exit("0", 0).step()
    world.evict("1").pods[world.name("1")]["status"] |= {
        "containerStatuses": [],
        "initContainerStatuses": [ended("prep", 137, 1)],
    }
    world.settle()
    text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
    assert "exited with error code 137 (Evicted, init container prep)" in text


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_sidecar_that_is_ended_with_its_pod_does_not_stand_for_the_replica(is_gone: bool) -> None:
    """Decision 108: its exit code is 143, and it often comes first."""
    world = World(pytorch(policy="Never")).running()
    world.pods[world.name("1")]["spec"]["initContainers"] = [
        {"name": "prepare"},
        {"name": "proxy", "restartPolicy": "Always"},
    ]
    initial = [ended("prepare", 0, 1), ended("proxy", 143, 2)]
    world.exit("1", 5).pods[world.name("1")]["status"]["initContainerStatuses"] = initial
    world.settle()
    if is_gone:
        world.remove("1").settle()
    [entry] = [
        each
        for task in world.status["tasks"]
        for each in task["replicas"]
        if each["name"] == world.name("1")
    ]
    assert [each.get("role") for each in entry["containers"]] == ["Init", "Sidecar", None]
    text = world.condition("ReplicaFailure")[2]  # type: ignore[index]
    assert "exited with error code 5" in text


@pytest.mark.parametrize(
    ("reason", "free"),
    [
        ("Evicted", True),
        ("NodeLost", True),
        ("Preempting", True),
        ("OutOfcpu", True),
        ("NodeShutdown", True),
        ("Terminated", True),
        ("DeadlineExceeded", False),
        ("", False),
    ],
)
def test_disruptions(reason: str, free: bool) -> None:
    assert is_disruption(pod("Failed", reason=reason)) is free


@pytest.mark.parametrize(("status", "free"), [("True", True), ("False", False)])
def test_disruption_by_condition(status: str, free: bool) -> None:
    condition = {"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI"}
    assert is_disruption(pod("Failed", conditions=[condition])) is free


def test_a_pod_is_decoded_as_far_as_it_matters() -> None:
    found = Pod.decode(
        {
            "metadata": {
                "namespace": "ml",
                "name": "p",
                "uid": "u",
                "resourceVersion": "7",
                "labels": {"trainyard.dev/replica-type": "ps", "replica-index": "3"},
                "annotations": {"trainyard.dev/attempt": "4", "trainyard.dev/revision": "r"},
                "ownerReferences": [{"uid": "x"}, {"uid": "job", "controller": True}],
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"nodeName": "n", "activeDeadlineSeconds": 1},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "m", "state": {"running": {}}}],
            },
        }
    )
    assert (found.namespace, found.resource_version, found.owner_uid) == ("ml", "7", "job")
    assert (found.type, found.index, found.attempt, found.revision) == ("ps", 3, 4, "r")
    assert (found.node, found.scheduled, found.deadline_seconds) == ("n", True, 1)
    assert found.container_statuses == [{"name": "m", "state": "Running"}]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5"])
def test_an_attempt_that_is_no_number_is_the_first(text: str) -> None:
    obj = {"metadata": {"name": "p", "uid": "u", "annotations": {"trainyard.dev/attempt": text}}}
    assert Pod.decode(obj).attempt == 1


def test_owned_objects_keep_no_contents() -> None:
    secret = {
        "metadata": {"name": "s", "uid": "u", "namespace": "n"},
        "data": {"key": "c2VjcmV0"},
        "spec": {"x": 1},
    }
    found = observed_resources(Settings())[SECRETS](secret)
    assert isinstance(found, Owned)
    assert (found.resource, found.name, found.spec, found.status) == (SECRETS, "s", {}, {})
    board = {"metadata": {"name": "b", "uid": "u"}, "status": {"phase": "Running"}}
    assert Owned.decode(TENSOR_BOARDS, board).status == {"phase": "Running"}
    assert isinstance(observed_resources(Settings())[PODS](secret), Pod)


def test_a_failure_for_good_is_remembered_with_its_code_when_the_pod_is_gone() -> None:
    world = World(generic(workers=2, policy="Never", failureRules=[{"worker": [0, 1]}]))
    world.job["spec"]["successRules"] = [{"worker": [0]}, {"worker": [1]}]
    world.running().exit("0", 9, reason="OOMKilled").settle()
    assert world.phase == "Running"
    world.remove("0").settle()
    assert world.aggregate == {"running": 1, "failed": 1}
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_the_job_that_fails_later_blames_the_remembered_replica() -> None:
    world = World(elastic(2, 3, 3, policy="Never")).running()
    world.exit("1", 9, reason="OOMKilled").settle().remove("1").settle()
    assert "error code 9 (OOMKilled)" in world.condition("ReplicaFailure")[2]  # type: ignore[index]


def test_a_failure_without_a_container_is_remembered_with_its_reason() -> None:
    world = World(elastic(2, 3, 3, policy="Never")).running()
    world.pods[world.name("1")]["status"] = {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.settle().remove("1").settle()
    text = f"Pod[{world.name('1')}] failed (DeadlineExceeded)"
    assert world.condition("ReplicaFailure")[2] == text  # type: ignore[index]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Container("c", "Waiting")),
        ({"state": {"terminated": {"exitCode": 3}}}, Container("c", "Terminated", 3)),
        ({"state": {"terminated": {"signal": 9}}}, Container("c", "Terminated", 0)),
        (
            {"state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "m"}}},
            Container("c", "Terminated", 3, "Error", "m"),
        ),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}},
            Container("c", "Waiting", reason="ErrImagePull", message="no"),
        ),
        (
            {"state": {"running": {}}, "ready": True},
            Container("c", "Running", ready=True),
        ),
        (
            {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 2}}},
            Container("c", "Running", last_exit_code=2),
        ),
    ],
)
@pytest.mark.parametrize("is_init", [False, True])
def test_a_container_is_decoded(status: dict[str, Any], expected: Container, is_init: bool) -> None:
    key = "initContainerStatuses" if is_init else "containerStatuses"
    meta = {"name": "p", "uid": "u"}
    found = Pod.decode({"metadata": meta, "status": {key: [{"name": "c", **status}]}})
    assert found.containers == (replace(expected, is_init=is_init),)
    assert (found.container("c") is None) == is_init
