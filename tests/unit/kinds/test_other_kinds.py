"""PodGroup, Queue and TensorBoard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trainyard.kinds.kind_admission import admit, check
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.podgroup.spec import PodGroup
from trainyard.kinds.queue.spec import Queue
from trainyard.schema import duration


def obj(kind: str, spec: dict[str, Any], name: str = "a") -> dict[str, Any]:
    served = KINDS[kind]
    return {
        "apiVersion": served.api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


QUEUE = {
    "quota": {"requests": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": 8}},
    "priority": 100,
    "preemptible": False,
    "closed": True,
    "maxDuration": "1d12h",
    "resourceShapeProfile": "small",
    "nodeSelector": {"matchLabels": {"zone": "a"}},
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
}
GROUP = {
    "minMember": 4,
    "roles": [{"name": "worker", "minMember": 3}],
    "queue": "default",
    "priority": 5,
    "topologyPolicy": "x",
}
BOARD = {
    "logDir": {
        "pvc": [{"name": "a", "subPath": ["./log"]}],
        "s3": {"secretRef": {"name": "s"}, "uri": ["s3://b/"]},
        "http": {"url": ["http://x"]},
    },
    "trainingLogFilesets": ["t9k://minio/s/b/p"],
    "image": "tensorboard:2",
    "suspend": True,
    "scheduler": {"t9kScheduler": {"queue": "q"}},
    "resources": {"limits": {"cpu": 1}},
}


@pytest.mark.parametrize(
    ("kind", "spec"), [("Queue", QUEUE), ("PodGroup", GROUP), ("TensorBoard", BOARD)]
)
def test_all_fields_are_accepted_and_survive(kind: str, spec: dict[str, Any]) -> None:
    checked = check(obj(kind, spec))
    assert checked.problems == ()
    assert checked.model is not None
    assert checked.model.dump()["spec"] == spec
    assert admit(obj(kind, spec), obj(kind, {})).allowed


def test_defaults() -> None:
    queue = check(obj("Queue", {})).model
    assert isinstance(queue, Queue)
    assert queue.spec.preemptible is True
    assert (queue.spec.closed, queue.spec.priority) == (False, 0)
    assert queue.spec.namespace_selector is None
    group = check(obj("PodGroup", {})).model
    assert isinstance(group, PodGroup)
    assert (group.spec.min_member, group.spec.queue) == (1, None)


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("Queue", {"priority": 101}, "spec.priority"),
        ("Queue", {"maxDuration": "1 day"}, "spec.maxDuration"),
        ("Queue", {"maxDuration": 5}, "spec.maxDuration"),
        ("Queue", {"quota": {"requests": {"cpu": "x"}}}, "spec.quota.requests.cpu"),
        ("Queue", {"quota": {"requests": {"cpu": True}}}, "spec.quota.requests.cpu"),
        ("Queue", {"quota": {"limits": {}}}, "spec.quota.limits"),
        ("PodGroup", {"minMember": -1}, "spec.minMember"),
        ("PodGroup", {"roles": [{"minMember": 1}]}, "spec.roles[0].name"),
        ("TensorBoard", {"logDirs": {}}, "spec.logDirs"),
        ("TensorBoard", {"logDir": {"s3": {}}}, "spec.logDir.s3.secretRef"),
        ("TensorBoard", {"resources": {"limit": {}}}, "spec.resources.limit"),
    ],
)
def test_refused_with_a_path(kind: str, spec: dict[str, Any], path: str) -> None:
    assert [p.where for p in check(obj(kind, spec)).errors] == [path]


@pytest.mark.parametrize("kind", ["Queue", "PodGroup", "TensorBoard"])
def test_names_must_be_names(kind: str) -> None:
    assert [p.where for p in check(obj(kind, {}, "A b")).errors] == ["metadata.name"]


def test_a_tensorboard_leaves_room_for_the_name_of_its_pod() -> None:
    board = {"logDir": {"pvc": [{"name": "m"}]}}
    assert not check(obj("TensorBoard", board, "a" * 60)).errors
    (problem,) = check(obj("TensorBoard", board, "a" * 61)).errors
    assert (problem.where, "1 too long" in problem.detail) == ("metadata.name", True)


def test_a_duration_is_the_sum_of_its_parts() -> None:
    assert duration.parse(str(QUEUE["maxDuration"])) == timedelta(hours=36)
