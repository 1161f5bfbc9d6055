"""What is done and told for a TensorBoard in every state of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.simulation.viewer_judges import Shown, untrue
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.tensorboard.spec import TensorBoard
from trainyard.kinds.tensorboard.workload import describe
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import InvalidObject
from trainyard.lifecycle.actions import Create, Delete, Plan
from trainyard.lifecycle.observed import Conflict, Observed, Owned, Pod, Refusal
from trainyard.lifecycle.viewer.viewer_plan import plan_invalid_viewer, plan_viewer

NOW = datetime(2030, 1, 1, tzinfo=UTC)
UID = "board-uid"
OWNER = [{"uid": UID, "controller": True}]
STARTED = {"startedAt": "2030-01-01T00:00:00Z"}
MISSING = {"exitCode": 127, "message": "command not found: tensorboard"}


@dataclass
class World:
    """A TensorBoard and what is observed of it; `plan` keeps the status from pass to pass."""

    spec: Mapping[str, Any] = field(
        default_factory=lambda: {"logDir": {"pvc": [{"name": "mnist"}]}}
    )
    settings: Settings = field(default_factory=Settings)
    pods: tuple[Pod, ...] = ()
    has_service: bool = True
    refusals: tuple[Refusal, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    now: datetime = NOW
    status: Mapping[str, Any] | None = None

    def plan(self) -> Plan:
        """A pass, whose texts must be true."""
        observed = Observed(self.pods, self.services, self.refusals, self.conflicts)
        made = plan_viewer(self.board, self.status, observed, self.now, self.settings)
        metadata = {"name": "digits", "uid": UID}
        viewer = {"metadata": metadata, "spec": self.spec, "status": self.status}
        lies = list(untrue(Shown.of(viewer, observed, made)))
        assert not lies, "\n".join(lies)
        self.status = made.status if made.status is not None else self.status
        return made

    @property
    def board(self) -> Any:
        obj = {"metadata": {"name": "digits", "namespace": "team", "uid": UID, "generation": 2}}
        return describe(TensorBoard.model_validate({**obj, "spec": self.spec}), self.settings)

    @property
    def services(self) -> tuple[Owned, ...]:
        if not self.has_service:
            return ()
        manifest = self.board.service.manifest("digits-tb")
        manifest["metadata"] |= {"uid": "s", "resourceVersion": "1", "ownerReferences": OWNER}
        if manifest["spec"]["type"] == "NodePort":
            manifest["spec"]["ports"][0]["nodePort"] = 31234
        return (Owned.decode(SERVICES, manifest),)

    def pod(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        phase: str = "Running",
        ready: bool = False,
        last: Mapping[str, Any] | None = None,
        fetcher: Mapping[str, Any] | None = None,
        **meta: Any,
    ) -> Pod:
        """A pod of the present spec; `meta` changes its metadata."""
        made = self.board.pod
        status: dict[str, Any] = {"phase": phase}
        if state is not None:
            container = {"name": "tensorboard", "state": state, "ready": ready}
            status["containerStatuses"] = [
                {**container, "lastState": {"terminated": last} if last else {}},
                *([{"name": "fetch-0", **fetcher}] if fetcher else ()),
            ]
        metadata = {
            **made["metadata"],
            "uid": "p",
            "resourceVersion": "1",
            "ownerReferences": OWNER,
            "creationTimestamp": "2030-01-01T00:00:00Z",
            **meta,
        }
        spec = {**made["spec"], "nodeName": "node"}
        return Pod.decode({"metadata": metadata, "spec": spec, "status": status})

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason."""
        assert self.status is not None
        found = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]


def kinds(made: Plan) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.resource.plural) for action in made.actions]


def test_a_new_board_gets_a_service_and_a_pod() -> None:
    world = World(has_service=False)
    made = world.plan()
    assert kinds(made) == [("Create", "services"), ("Create", "pods")]
    manifest = next(a for a in made.actions if isinstance(a, Create) and a.resource == PODS)
    assert manifest.manifest() == world.board.pod
    assert world.status is not None
    assert world.status["phase"] == "Pending"
    assert world.status["observedGeneration"] == 2
    assert "url" not in world.status
    assert world.condition("Ready") == ("False", "Starting")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(cluster_domain="c.test"), "http://digits-tb.team.svc.c.test:6006"),
        (Settings.local(), "http://127.0.0.1:31234"),
    ],
)
def test_a_board_that_runs_tells_its_address_once(settings: Settings, url: str) -> None:
    world = World(settings=settings)
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    made = world.plan()
    assert made.status is not None
    assert made.status["url"] == url
    assert made.status["phase"] == "Running"
    assert made.status["pod"]["reference"]["name"] == "digits-tb"
    assert world.condition("Ready") == ("True", "Running")
    assert world.condition("LogsServed") == ("True", "AllServed")
    assert [event.reason for event in made.events] == ["Running"]
    again = world.plan()
    assert again == Plan(None)


@pytest.mark.parametrize(
    ("state", "options", "phase", "reason"),
    [
        (None, {"phase": "Pending"}, "Pending", "Starting"),
        ({"waiting": {"reason": "ContainerCreating"}}, {}, "Pending", "Starting"),
        ({"running": STARTED}, {}, "Pending", "Starting"),
        ({"running": STARTED}, {"last": {"exitCode": 1}}, "Pending", "Starting"),
        ({"running": STARTED}, {"ready": True, "last": MISSING}, "Running", "Running"),
        ({"waiting": {"reason": "ErrImagePull", "message": "no"}}, {}, "Failed", "Crashed"),
        ({"terminated": {"exitCode": 137}}, {}, "Failed", "Crashed"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"last": {"exitCode": 1}}, *2 * ("",)),
        ({"terminated": MISSING}, {}, "Failed", "ProgramMissing"),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            {"last": MISSING},
            "Failed",
            "ProgramMissing",
        ),
        (None, {"phase": "Failed"}, "Failed", "Crashed"),
    ],
)
def test_every_state_of_the_pod_is_told(
    state: Mapping[str, Any] | None, options: Mapping[str, Any], phase: str, reason: str
) -> None:
    world = World()
    world.pods = (world.pod(state, **options),)
    made = world.plan()
    assert made.status is not None
    assert made.status["phase"] == (phase or "Failed")
    assert world.condition("Ready")[1] == (reason or "Crashed")
    warned = [event.reason for event in made.events if event.type == "Warning"]
    assert warned == ([world.condition("Ready")[1]] if made.status["phase"] == "Failed" else [])


def test_a_program_that_a_runtime_does_not_find_is_missing_too() -> None:
    world = World(spec={"logDir": {"pvc": [{"name": "m"}]}, "image": "bare"})
    text = 'exec: "tensorboard": executable file not found in $PATH'
    ended = {"exitCode": 128, "reason": "StartError", "message": text}
    world.pods = (world.pod({"terminated": ended}),)
    made = world.plan()
    assert world.condition("Ready") == ("False", "ProgramMissing")
    (event,) = made.events
    for word in ("image bare", text, "pip install tensorboard", "spec.image"):
        assert word in event.message


def test_the_same_trouble_is_told_once_and_a_new_one_again() -> None:
    world = World()
    world.pods = (world.pod({"terminated": MISSING}),)
    assert len(world.plan().events) == 1
    assert world.plan().events == ()
    world.pods = (world.pod({"terminated": {"exitCode": 1, "message": "bad flag"}}),)
    (event,) = world.plan().events
    assert "exit code 1" in event.message
    assert "bad flag" in event.message


def test_an_unschedulable_pod_is_told() -> None:
    world = World()
    status = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}],
    }
    raw = world.board.pod
    meta = {**raw["metadata"], "uid": "p", "ownerReferences": OWNER}
    world.pods = (Pod.decode({"metadata": meta, "spec": raw["spec"], "status": status}),)
    made = world.plan()
    assert made.status is not None
    assert made.status["phase"] == "Pending"
    assert world.condition("Ready") == ("False", "Unschedulable")


def test_a_changed_spec_replaces_the_pod_and_keeps_the_service() -> None:
    world = World()
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    world.plan()
    world.spec = {**world.spec, "image": "other"}
    made = world.plan()
    assert made.actions == (Delete(PODS, "digits-tb", "p"),)
    world.pods = ()
    made = world.plan()
    assert kinds(made) == [("Create", "pods")]


def test_a_suspended_board_has_a_service_and_no_pod() -> None:
    world = World()
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    world.spec = {**world.spec, "suspend": True}
    made = world.plan()
    assert kinds(made) == [("Delete", "pods")]
    assert made.status is not None
    assert made.status["phase"] == "Suspended"
    assert world.condition("Ready") == ("False", "Suspended")
    world.pods = ()
    assert world.plan().actions == ()
    world.spec = {**world.spec, "suspend": False}
    assert kinds(world.plan()) == [("Create", "pods")]


def test_a_pod_that_is_going_is_waited_for() -> None:
    world = World()
    going = {"deletionTimestamp": "2030-01-01T00:00:05Z", "deletionGracePeriodSeconds": 5}
    world.pods = (world.pod({"running": STARTED}, ready=True, **going),)
    made = world.plan()
    assert made.actions == ()
    limit = timedelta(seconds=5 + world.settings.force_delete_seconds)
    assert made.wake_at == NOW + limit
    world.now = NOW + limit
    assert world.plan().actions == (Delete(PODS, "digits-tb", "p", grace_seconds=0),)


def test_an_evicted_pod_is_replaced_but_not_in_a_circle() -> None:
    world = World()
    world.pods = (world.pod(None, phase="Failed"),)
    made = world.plan()
    assert made.actions == ()
    assert made.wake_at == NOW + timedelta(seconds=30)
    world.now = NOW + timedelta(seconds=30)
    assert world.plan().actions == (Delete(PODS, "digits-tb", "p"),)


def test_a_pod_of_another_owner_is_none_of_ours() -> None:
    world = World()
    other = [{"uid": "another", "controller": True}]
    world.pods = (world.pod({"running": STARTED}, ready=True, ownerReferences=other),)
    assert kinds(world.plan()) == [("Create", "pods")]


def test_a_refused_creation_is_told_and_tried_again_later() -> None:
    refusal = Refusal(PODS, "digits-tb", 403, "exceeded quota", NOW)
    world = World(refusals=(refusal,))
    made = world.plan()
    assert made.actions == ()
    assert made.wake_at == NOW + timedelta(seconds=1)
    assert world.condition("Ready") == ("False", "CreationRefused")
    assert [event.type for event in made.events] == ["Warning"]
    world.now = NOW + timedelta(seconds=1)
    assert kinds(world.plan()) == [("Create", "pods")]


def test_a_taken_name_is_told() -> None:
    conflict = Conflict(PODS, "digits-tb", "Pod team/digits-tb", NOW + timedelta(seconds=9))
    world = World(conflicts=(conflict,))
    made = world.plan()
    assert (made.actions, made.wake_at) == ((), NOW + timedelta(seconds=9))
    assert world.condition("Ready") == ("False", "NameConflict")
    assert "Pod team/digits-tb" in made.events[0].message


def test_a_board_without_logs_gets_no_pod() -> None:
    world = World(spec={})
    made = world.plan()
    assert made.actions == ()
    assert world.condition("Ready") == ("False", "NoLogs")
    assert [event.reason for event in made.events] == ["NoLogs"]


def test_logs_that_cannot_be_shown_are_told_beside_those_that_can() -> None:
    world = World(spec={"logDir": {"pvc": [{"name": "m", "subPath": ["log", "../x"]}]}})
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    made = world.plan()
    assert made.status is not None
    assert made.status["phase"] == "Running"
    assert world.condition("LogsServed") == ("False", "NotServed")
    assert [event.reason for event in made.events] == ["Running", "NotServed"]
    assert world.plan() == Plan(None)


REFUSED = {"exitCode": 1, "message": "cannot fetch s3://runs/: HTTP Error 403: Forbidden"}


@pytest.mark.parametrize(
    ("fetcher", "expected"),
    [
        ({"state": {"running": STARTED}, "ready": True}, ("True", "AllServed")),
        ({"state": {"running": STARTED}}, ("False", "Fetching")),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ("False", "Fetching")),
        ({"state": {"terminated": REFUSED}}, ("False", "FetchFailed")),
        (
            {"state": {"running": STARTED}, "lastState": {"terminated": REFUSED}},
            ("False", "FetchFailed"),
        ),
        (
            {"state": {"running": STARTED}, "ready": True, "lastState": {"terminated": REFUSED}},
            ("True", "AllServed"),
        ),
        (
            {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no keys"}}},
            ("False", "FetchFailed"),
        ),
        (None, ("False", "Fetching")),
    ],
)
def test_what_is_fetched_is_told_and_holds_up_nothing_else(
    fetcher: Mapping[str, Any] | None, expected: tuple[str, str]
) -> None:
    world = World(spec={"logDir": {"s3": {"secretRef": {"name": "k"}, "uri": ["s3://runs/"]}}})
    world.pods = (world.pod({"running": STARTED}, ready=True, fetcher=fetcher),)
    made = world.plan()
    assert world.condition("Ready") == ("True", "Running")
    assert world.condition("LogsServed") == expected
    warned = [event.message for event in made.events if event.type == "Warning"]
    assert len(warned) == (expected[1] == "FetchFailed")
    if fetcher and REFUSED in (fetcher["state"].get("terminated"),):
        assert REFUSED["message"] in warned[0]


def test_a_condition_that_holds_keeps_its_time() -> None:
    world = World()
    world.pods = (world.pod({"running": STARTED}, ready=True),)
    world.plan()
    world.now = NOW + timedelta(hours=1)
    assert world.plan() == Plan(None)
    world.pods = (world.pod({"terminated": {"exitCode": 137}}),)
    world.plan()
    assert world.status is not None
    times = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    assert times == {"Ready": "2030-01-01T01:00:00Z", "LogsServed": "2030-01-01T00:00:00Z"}


def test_an_invalid_board_is_told_and_left_alone() -> None:
    invalid = InvalidObject("TensorBoard", "digits", 4, ["spec.image: must be a string"])
    made = plan_invalid_viewer(invalid, {"url": "http://x"}, NOW)
    assert made.actions == ()
    assert made.status is not None
    assert made.status["phase"] == "Failed"
    assert made.status["url"] == "http://x"
    (event,) = made.events
    assert (event.type, event.reason) == ("Warning", "InvalidSpec")
    assert "spec.image" in event.message
    assert plan_invalid_viewer(invalid, made.status, NOW) == Plan(None)
