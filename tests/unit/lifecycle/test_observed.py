"""What is kept of objects: everything that decisions need, and nothing that is not there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.scheduling.gang_scheduling import VOLCANO_POD_GROUPS
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES
from trainyard.lifecycle.observed import Container, Owned, Pod, observed_resources

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OWNERS = [{"uid": "a-user's", "kind": "Thing"}, {"uid": "job", "controller": True}]


def at(minute: int) -> str:
    return f"2030-01-01T12:{minute:02}:00Z"


def moment(minute: int) -> datetime:
    return NOON.replace(minute=minute)


def test_a_pod_of_which_nothing_is_known_has_what_kubernetes_takes_for_granted() -> None:
    bare = Pod.decode({"metadata": {"name": "p", "uid": "u"}})
    assert bare == Pod(
        namespace="", name="p", uid="u", resource_version="", owner_uid="", phase="Pending"
    )
    assert (bare.container_statuses, bare.type, bare.index, bare.attempt) == ([], "", 0, 1)


FULL: dict[str, Any] = {
    "metadata": {
        "namespace": "team",
        "name": "p",
        "uid": "u",
        "resourceVersion": "7",
        "ownerReferences": OWNERS,
        "labels": {labels.REPLICA_TYPE: "worker", labels.REPLICA_INDEX: "3"},
        "annotations": {labels.ATTEMPT: "4", labels.REVISION: "abc"},
        "creationTimestamp": at(1),
        "deletionTimestamp": at(9),
        "deletionGracePeriodSeconds": 30,
    },
    "spec": {"nodeName": "node", "activeDeadlineSeconds": 5},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low.",
        "startTime": at(2),
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"},
        ],
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 3, "finishedAt": at(8)}}}
        ],
    },
}


def test_everything_that_decisions_need_of_a_pod_is_kept() -> None:
    pod = Pod.decode(FULL)
    assert pod == Pod(
        namespace="team",
        name="p",
        uid="u",
        resource_version="7",
        owner_uid="job",
        phase="Failed",
        type="worker",
        index=3,
        attempt=4,
        revision="abc",
        node="node",
        created=moment(1),
        started=moment(2),
        deleting=moment(9),
        grace_seconds=30,
        deadline_seconds=5,
        reason="Evicted",
        message="The node was low.",
        scheduled=True,
        disruption="TerminationByKubelet",
        conditions=(("PodScheduled", "True"), ("DisruptionTarget", "True")),
        containers=(Container("main", "Terminated", exit_code=3, ended=moment(8)),),
    )
    assert pod.container_statuses == [{"name": "main", "state": "Terminated", "exitCode": 3}]


def pod_with(*conditions: dict[str, str], **metadata: Any) -> Pod:
    meta = {"name": "p", "uid": "u", **metadata}
    return Pod.decode({"metadata": meta, "status": {"conditions": [*conditions]}})


def test_a_pod_is_scheduled_by_its_node_or_by_its_condition() -> None:
    assert not pod_with().scheduled
    assert pod_with({"type": "PodScheduled", "status": "True", "message": "odd"}).scheduled
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}
    waits = pod_with(condition)
    assert (waits.scheduled, waits.unschedulable) == (False, "0/3 nodes")
    assert pod_with({"type": "PodScheduled", "status": "False"}).unschedulable == ""
    assert pod_with({**condition, "status": "True"}).unschedulable == ""


def test_a_disruption_that_is_over_or_unknown_is_none() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}
    assert pod_with(target).disruption == "Preempted"
    assert pod_with({**target, "status": "False"}).disruption == ""
    assert pod_with({"type": "DisruptionTarget", "status": "True"}).disruption == ""
    assert pod_with({"type": "Odd"}).conditions == (("Odd", ""),)


@pytest.mark.parametrize(
    ("metadata", "attempt"),
    [
        ({"annotations": {"trainyard.dev/attempt": "6"}}, 6),
        ({"labels": {"trainyard.dev/attempt": "5"}}, 5),  # of an earlier version
        ({"annotations": {"trainyard.dev/attempt": "many"}}, 1),
        ({"annotations": None, "labels": None}, 1),
    ],
)
def test_a_pods_attempt(metadata: dict[str, Any], attempt: int) -> None:
    assert pod_with(**metadata).attempt == attempt


def container(**status: Any) -> Container:
    """As it is decoded of a pod that has one."""
    statuses = [{"name": "main", **status}]
    obj = {"metadata": {"name": "p", "uid": "u"}, "status": {"containerStatuses": statuses}}
    (found,) = Pod.decode(obj).containers
    return found


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Container("main", "Waiting")),
        ({"state": None, "lastState": None}, Container("main", "Waiting")),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
            Container("main", "Waiting", reason="ErrImagePull", message="no such image"),
        ),
        (
            {"state": {"running": {"startedAt": at(5)}}, "ready": True, "started": True},
            Container("main", "Running", ready=True, started=True, since=moment(5)),
        ),
        ({"state": {"running": {}}, "started": False}, Container("main", "Running", started=False)),
        (
            {
                "state": {"waiting": {}},
                "lastState": {"terminated": {"exitCode": 9, "message": "bad flag"}},
            },
            Container("main", "Waiting", last_exit_code=9, last_message="bad flag"),
        ),
        (
            {
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "message": "last lines",
                        "finishedAt": at(6),
                    }
                }
            },
            Container(
                "main",
                "Terminated",
                exit_code=137,
                reason="OOMKilled",
                message="last lines",
                ended=moment(6),
            ),
        ),
        ({"state": {"terminated": {"x": 1}}}, Container("main", "Terminated", exit_code=0)),
    ],
)
def test_a_containers_state(status: dict[str, Any], expected: Container) -> None:
    assert container(**status) == expected


def test_init_containers_and_sidecars_are_told_apart_from_the_others() -> None:
    running = {"state": {"running": {}}}
    obj = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "initContainers": [{"name": "prep"}, {"name": "beside", "restartPolicy": "Always"}]
        },
        "status": {
            "initContainerStatuses": [
                {"name": "prep", "state": {"terminated": {"exitCode": 2}}},
                {"name": "beside", **running},
            ],
            "containerStatuses": [{"name": "main", **running}],
        },
    }
    pod = Pod.decode(obj)
    assert pod.containers == (
        Container("prep", "Terminated", exit_code=2, is_init=True),
        Container("beside", "Running", is_init=True, is_sidecar=True),
        Container("main", "Running"),
    )
    assert pod.container("main") == pod.containers[2]
    assert pod.container("prep") is None
    assert pod.container_statuses == [
        {"name": "prep", "state": "Terminated", "role": "Init", "exitCode": 2},
        {"name": "beside", "state": "Running", "role": "Sidecar"},
        {"name": "main", "state": "Running"},
    ]


# Other objects.


def test_of_other_objects_little_is_kept() -> None:
    metadata = {"name": "o", "uid": "u"}
    bare = Owned.decode(SERVICES, {"metadata": metadata})
    assert bare == Owned(SERVICES, "", "o", "u", "", "")
    assert (bare.spec, bare.status, bare.deleting) == ({}, {}, False)
    more = {"namespace": "team", "resourceVersion": "7", "deletionTimestamp": at(1)}
    obj = {
        "metadata": {**metadata, **more, "ownerReferences": OWNERS},
        "spec": {"type": "ClusterIP"},
        "status": {"loadBalancer": {}},
    }
    full = Owned.decode(SERVICES, obj)
    assert full == Owned(SERVICES, "team", "o", "u", "7", "job", deleting=True)
    assert (full.spec, full.status) == ({}, {})


def test_the_port_of_a_node_and_the_status_of_a_viewer_are_kept() -> None:
    metadata = {"name": "o", "uid": "u"}
    spec = {"type": "NodePort", "ports": [{"nodePort": 31234}]}
    service = Owned.decode(SERVICES, {"metadata": metadata, "spec": spec, "status": {"x": 1}})
    assert (service.spec, service.status) == (spec, {})
    obj = {"metadata": metadata, "spec": {"image": "i"}, "status": {"phase": "Running"}}
    viewer = Owned.decode(TENSOR_BOARDS, obj)
    assert (viewer.spec, viewer.status) == ({"image": "i"}, {"phase": "Running"})
    new = Owned.decode(TENSOR_BOARDS, {"metadata": metadata, "spec": None})
    assert (new.spec, new.status) == ({}, {})


def test_what_is_watched_of_a_job() -> None:
    plain = observed_resources(Settings(gang_backend=GangBackend.NONE))
    assert set(plain) == {PODS, SERVICES, SECRETS, CONFIG_MAPS, TENSOR_BOARDS}
    volcano = observed_resources(Settings(gang_backend=GangBackend.VOLCANO))
    assert {*volcano} - {*plain} == {VOLCANO_POD_GROUPS}
    older = Settings(gang_backend=GangBackend.KUBERNETES, pod_groups_version="v1alpha2")
    (groups,) = {*observed_resources(older)} - {*plain}
    assert groups.api_version == "scheduling.k8s.io/v1alpha2"
    owned = plain[SECRETS]({"metadata": {"name": "s", "uid": "u"}})
    assert owned == Owned(SECRETS, "", "s", "u", "", "")
    assert isinstance(plain[PODS]({"metadata": {"name": "p", "uid": "u"}}), Pod)


def test_what_the_pods_of_a_job_have_in_common_is_kept_once() -> None:
    """Thousands of pods are kept; a text of JSON is a new one each time it is read."""
    texts = [orjson.dumps({**FULL, "metadata": {**FULL["metadata"], "uid": uid}}) for uid in "ab"]
    first, second = (Pod.decode(orjson.loads(text)) for text in texts)
    assert first != second
    for name in ("namespace", "owner_uid", "node", "type", "revision", "created", "started"):
        assert getattr(first, name) is getattr(second, name), name
    assert first.conditions is second.conditions
    assert first.containers is second.containers
    assert first.container_statuses is second.container_statuses
