"""What is told of a TensorBoard, word for word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.test_viewers import MISSING, NOW, STARTED, World
from tests.unit.lifecycle.world import World as Jobs
from tests.unit.lifecycle.world import pytorch
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import InvalidObject
from trainyard.lifecycle.actions import Create, Delete, Event
from trainyard.lifecycle.observed import Conflict, Owned, Refusal
from trainyard.lifecycle.viewer.viewer_links import viewer_status_fields
from trainyard.lifecycle.viewer.viewer_plan import plan_invalid_viewer


def condition_texts(world: World, kind: str) -> tuple[str, str]:
    """A condition's reason and message."""
    assert world.status is not None
    found = next(c for c in world.status["conditions"] if c["type"] == kind)
    return found["reason"], found["message"]


@pytest.mark.parametrize(
    ("state", "options", "phase", "message"),
    [
        (None, {"phase": "Pending"}, "Pending", "Pod[digits-tb] is starting."),
        ({"running": STARTED}, {}, "Pending", "Pod[digits-tb] is starting."),
        ({"running": STARTED}, {"ready": True}, "Running", "TensorBoard runs and can be opened."),
        (
            {"waiting": {"reason": "ErrImagePull", "message": "no"}},
            {},
            "Failed",
            "TensorBoard cannot be started: ErrImagePull no",
        ),
        (
            {"waiting": {"reason": "ErrImagePull"}},
            {},
            "Failed",
            "TensorBoard cannot be started: ErrImagePull",
        ),
        (
            {"terminated": {"exitCode": 137}},
            {},
            "Failed",
            "TensorBoard ended with exit code 137; it is started again.",
        ),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            {"last": {"exitCode": 1, "message": "bad flag"}},
            "Failed",
            "TensorBoard ended with exit code 1; it is started again.\nbad flag",
        ),
        (
            {"terminated": {"exitCode": 128, "reason": "Error", "message": "not found"}},
            {},
            "Failed",
            "TensorBoard ended with exit code 128; it is started again.\nnot found",
        ),
        (
            {"terminated": {"exitCode": 128, "reason": "StartError", "message": "denied"}},
            {},
            "Failed",
            "TensorBoard ended with exit code 128; it is started again.\ndenied",
        ),
        (
            {"terminated": {"exitCode": 0}},
            {"phase": "Succeeded"},
            "Failed",
            "TensorBoard ended with exit code 0; it is started again.",
        ),
        (
            {"terminated": {"exitCode": 127}},
            {},
            "Failed",
            (
                "there is no program `tensorboard` in the image bare (exit 127): install it there "
                "(pip install tensorboard), or name another in spec.image."
            ),
        ),
        (
            {"terminated": MISSING},
            {"phase": "Failed"},
            "Failed",
            (
                "there is no program `tensorboard` in the image bare (command not found: "
                "tensorboard): install it there (pip install tensorboard), or name another in "
                "spec.image."
            ),
        ),
        (None, {"phase": "Failed"}, "Failed", "Pod[digits-tb] has failed: Error"),
    ],
)
def test_every_state_of_the_pod_has_its_words(
    state: Mapping[str, Any] | None, options: Mapping[str, Any], phase: str, message: str
) -> None:
    world = World(spec={"logDir": {"pvc": [{"name": "m"}]}, "image": "bare"})
    world.pods = (world.pod(state, **options),)
    made = world.plan()
    assert world.status is not None
    assert world.status["phase"] == phase
    assert condition_texts(world, "Ready")[1] == message
    told_as = {"Failed": "Warning", "Running": "Normal"}
    events = [(told_as[phase], message)] if phase in told_as else []
    assert [(event.type, event.message) for event in made.events] == events


def test_an_eviction_has_its_words() -> None:
    world = World()
    evicted = replace(world.pod(None, phase="Failed"), reason="Evicted", message="low on memory")
    world.pods = (evicted,)
    world.plan()
    assert condition_texts(world, "Ready") == (
        "Crashed",
        "Pod[digits-tb] has failed: Evicted low on memory",
    )


@pytest.mark.parametrize(
    ("scheduled", "unschedulable", "message"),
    [
        (False, "no room", "Pod[digits-tb] cannot be scheduled: no room"),
        (False, "", "Pod[digits-tb] is starting."),
        (True, "no room", "Pod[digits-tb] is starting."),
    ],
)
def test_a_pod_without_a_node_has_its_words(
    scheduled: bool, unschedulable: str, message: str
) -> None:
    world = World()
    pod = world.pod(None, phase="Pending")
    world.pods = (replace(pod, scheduled=scheduled, unschedulable=unschedulable),)
    world.plan()
    assert condition_texts(world, "Ready")[1] == message


@pytest.mark.parametrize(
    ("world", "phase", "reason", "message"),
    [
        (
            World(spec={"logDir": {"pvc": [{"name": "m"}]}, "suspend": True}),
            "Suspended",
            "Suspended",
            "spec.suspend is true.",
        ),
        (
            World(spec={}),
            "Failed",
            "NoLogs",
            "the spec names no logs that can be shown; set logDir.",
        ),
        (
            World(conflicts=(Conflict(PODS, "digits-tb", "Pod team/digits-tb"),)),
            "Failed",
            "NameConflict",
            (
                "cannot create pods digits-tb: the name is held by Pod team/digits-tb; delete that "
                "object."
            ),
        ),
        (
            World(refusals=(Refusal(PODS, "digits-tb", 403, "exceeded quota", NOW),)),
            "Pending",
            "CreationRefused",
            "the server refuses to create pods digits-tb (403): exceeded quota",
        ),
        (World(), "Pending", "Starting", "Pod[digits-tb] is being created."),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_what_keeps_it_from_having_a_pod_has_its_words(
    world: World, phase: str, reason: str, message: str
) -> None:
    world = replace(world)
    world.plan()
    assert world.status is not None
    assert world.status["phase"] == phase
    assert condition_texts(world, "Ready") == (reason, message)


REFUSED = {"exitCode": 1, "message": "cannot fetch s3://runs/"}
S3 = {"secretRef": {"name": "k"}, "uri": ["s3://runs/"]}
HELD_UP = {"waiting": {"reason": "CreateContainerConfigError", "message": "no keys"}}


@pytest.mark.parametrize(
    ("fetcher", "message"),
    [
        ({"state": {"running": STARTED}, "ready": True}, "All logs that the spec names are shown."),
        ({"state": {"running": STARTED}}, "Some logs are being fetched."),
        ({"state": {"terminated": REFUSED}}, "not shown: cannot fetch s3://runs/"),
        ({"state": {"terminated": {"exitCode": 2}}}, "not shown: fetch-0: exit code 2"),
        (
            {"state": {"running": STARTED}, "lastState": {"terminated": REFUSED}},
            "not shown: cannot fetch s3://runs/",
        ),
        (
            {"state": {"running": STARTED}, "lastState": {"terminated": {"exitCode": 2}}},
            "not shown: fetch-0: exit 2",
        ),
        ({"state": HELD_UP}, "not shown: CreateContainerConfigError no keys"),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, "not shown: ErrImagePull"),
        (None, "Some logs are being fetched."),
    ],
)
def test_what_is_fetched_has_its_words(fetcher: Mapping[str, Any] | None, message: str) -> None:
    world = World(spec={"logDir": {"s3": S3}})
    world.pods = (world.pod({"running": STARTED}, ready=True, fetcher=fetcher),)
    world.plan()
    assert condition_texts(world, "LogsServed")[1] == message


def test_logs_are_fetched_as_long_as_there_is_no_pod() -> None:
    world = World(spec={"logDir": {"s3": S3}})
    world.plan()
    assert condition_texts(world, "LogsServed") == ("Fetching", "Some logs are being fetched.")


def test_all_that_is_not_shown_is_told_in_one_sentence() -> None:
    spec = {"logDir": {"pvc": [{"name": "m", "subPath": ["../x", "log"]}], "s3": S3}}
    world = World(spec=spec)
    fetcher = {"state": {"terminated": REFUSED}}
    world.pods = (world.pod({"running": STARTED}, ready=True, fetcher=fetcher),)
    world.plan()
    (lacking,) = world.board.unserved
    message = f"not shown: {lacking}; cannot fetch s3://runs/"
    assert condition_texts(world, "LogsServed") == ("FetchFailed", message)


# Status and actions.


def test_the_pod_and_the_address_are_told_while_they_are_there() -> None:
    world = World()
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    world.plan()
    assert world.status is not None
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "digits-tb", "namespace": "team"}
    assert world.status["pod"] == {"reference": {**reference, "uid": "p"}, "phase": "Running"}
    world.pods, world.has_service = (), False
    world.plan()
    assert world.status is not None
    assert not {"pod", "url"} & set(world.status)


def test_an_address_needs_the_nodes_port() -> None:
    class Early(World):
        services = World().services

    made = Early(settings=Settings.local()).plan()
    assert made.status is not None
    assert "url" not in made.status


def test_what_is_created_is_what_the_kind_wants() -> None:
    world = World(has_service=False)
    service, pod = world.plan().actions
    assert isinstance(service, Create)
    assert isinstance(pod, Create)
    assert (service.resource, service.name) == (SERVICES, "digits-tb")
    assert service.manifest() == world.board.service.manifest("digits-tb")
    assert pod.manifest() == world.board.pod


def test_another_object_of_ours_is_not_taken_for_the_service() -> None:
    class Confused(World):
        @property
        def services(self) -> tuple[Owned, ...]:
            return tuple(replace(o, resource=TENSOR_BOARDS) for o in super().services)

    made = Confused().plan()
    assert [action.resource for action in made.actions] == [SERVICES, PODS]


def test_it_wakes_for_whatever_comes_first() -> None:
    refusals = (Refusal(SERVICES, "digits-tb", 403, "no", NOW, 9),)
    world = World(has_service=False, refusals=refusals)
    world.pods = (world.pod(None, phase="Failed", creationTimestamp="2029-12-31T23:59:35Z"),)
    assert world.plan().wake_at == NOW + timedelta(seconds=5)


def test_a_pod_that_ended_with_its_node_is_replaced() -> None:
    world = World(now=NOW + timedelta(seconds=30))
    world.pods = (world.pod({"terminated": {"exitCode": 0}}, phase="Succeeded"),)
    assert world.plan().actions == (Delete(PODS, "digits-tb", "p"),)


def test_all_rules_that_an_invalid_board_breaks_are_told() -> None:
    invalid = InvalidObject("TensorBoard", "digits", 4, ["spec.a: no", "spec.b: no"])
    made = plan_invalid_viewer(invalid, None, NOW)
    message = "the spec is invalid: spec.a: no; spec.b: no"
    condition = {"type": "Ready", "status": "False", "reason": "InvalidSpec", "message": message}
    assert made.status == {
        "phase": "Failed",
        "conditions": [{**condition, "lastTransitionTime": "2030-01-01T00:00:00Z"}],
        "observedGeneration": 4,
    }
    assert made.events == (Event("Warning", "InvalidSpec", message),)


# In the status of the job that it belongs to.

READY = {"type": "Ready", "status": "False", "message": "there is no program"}
LOGS = {"type": "LogsServed", "status": "False", "reason": "Fetching", "message": "wait"}
NOT_READY = "TensorBoard [train-1b255] is not ready"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, {"action": "Create", "note": NOT_READY}),
        ({}, {"note": NOT_READY}),
        (
            {"phase": "Running", "url": "http://x"},
            {"note": "TensorBoard [train-1b255] is ready", "ready": True, "url": "http://x"},
        ),
        (
            {"phase": "Failed", "conditions": [READY]},
            {"note": f"{NOT_READY}: there is no program", "type": "Warning"},
        ),
        ({"phase": "Pending", "conditions": [LOGS]}, {"note": f"{NOT_READY}; wait"}),
        (
            {"conditions": [{k: v for k, v in LOGS.items() if k != "message"}]},
            {"note": f"{NOT_READY}; "},
        ),
        (
            {"conditions": [{**LOGS, "reason": "FetchFailed"}]},
            {"note": f"{NOT_READY}; wait", "type": "Warning"},
        ),
    ],
)
def test_the_job_tells_of_its_board(
    status: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    jobs = Jobs(pytorch(workers=1, tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    uid = ""
    if status is not None:
        jobs.settle()
        board = next(obj for obj in jobs.owned.values() if obj["kind"] == "TensorBoard")
        board["status"], uid = status, board["metadata"]["uid"]
    ready = bool(expected.get("ready"))
    assert viewer_status_fields(jobs.workload, jobs.observed()) == {
        "tensorboard": {
            "action": "NOP",
            "dependent": {
                "apiVersion": TENSOR_BOARDS.api_version,
                "kind": "TensorBoard",
                "name": jobs.workload.base,
                "namespace": "default",
                "uid": uid,
            },
            "name": "tensorboard",
            "ready": False,
            "reason": "DependentReady" if ready else "DependentNotReady",
            "type": "Normal",
            **expected,
        }
    }


def test_containers_that_end_with_their_pod_have_not_failed_to_fetch() -> None:
    spec = {"logDir": {"s3": {"secretRef": {"name": "keys"}, "uri": ["s3://logs/run/"]}}}
    world = World(spec)
    fetcher = {"state": {"terminated": {"exitCode": 137}}}
    gone = world.pod(
        {"terminated": {"exitCode": 137}},
        fetcher=fetcher,
        deletionTimestamp="2030-01-01T00:00:30Z",
    )
    world.pods = (gone,)
    made = world.plan()
    assert condition_texts(world, "LogsServed") == ("Fetching", "Some logs are being fetched.")
    assert made.events == ()
    world.pods = (replace(gone, deleting=None),)
    world.plan()
    assert condition_texts(world, "LogsServed") == (
        "FetchFailed",
        "not shown: fetch-0: exit code 137",
    )
