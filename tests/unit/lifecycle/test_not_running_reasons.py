"""What goes wrong around a job: refusals, taken names, lost nodes, stuck pods, stale views."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import START, World, deepspeed, generic, pytorch, torchrun
from trainyard.kinds.podgroup import POD_GROUPS
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.tensorboard import TENSOR_BOARDS
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import InvalidObject, plan_invalid
from trainyard.lifecycle.actions import Create, Delete
from trainyard.lifecycle.observed import Conflict, Refusal
from trainyard.schema.times import parse, render

SCHEDULED = {"scheduler": {"t9kScheduler": {"queue": "q"}}}


def test_a_refused_creation_leaves_the_job_pending_with_a_warning_and_is_tried_again() -> None:
    world = World(pytorch())
    refusal = Refusal(PODS, world.name("0"), 403, "exceeded quota", world.now, count=3)
    world.refusals = (refusal,)
    plan = world.step()
    assert world.phase == "Pending"
    assert not [a for a in plan.actions if isinstance(a, Create) and a.resource == PODS]
    assert plan.wake_at == world.now + timedelta(seconds=4)
    assert world.condition("Running")[:2] == ("False", "CreationRefused")  # type: ignore[index]
    assert len(world.messages("CreationRefused")) == 1
    assert "exceeded quota" in world.messages("CreationRefused")[0]
    world.step()
    assert len(world.messages("CreationRefused")) == 1, "told once"
    world.advance(4).step()
    assert len(world.pods) == 4


@pytest.mark.parametrize(("count", "seconds"), [(1, 1), (2, 2), (6, 32), (7, 60), (500, 60)])
def test_refusals_are_tried_again_ever_more_slowly(count: int, seconds: int) -> None:
    world = World(pytorch())
    world.refusals = (Refusal(PODS, "x", 403, "no", world.now, count=count),)
    assert world.step().wake_at == world.now + timedelta(seconds=seconds)


@pytest.mark.parametrize("make", [pytorch, torchrun, generic, deepspeed])
def test_no_pod_comes_before_a_service_that_is_refused(make: Any) -> None:
    """Names of replicas would not resolve (decision 26)."""
    ports = {"service": {"ports": [{"port": 80}]}} if make is generic else {}
    world = World(make(**ports))
    (name, *_) = [d.name for d in world.workload.dependents if d.resource == SERVICES]
    world.refusals = (Refusal(SERVICES, name, 403, "no right", world.now),)
    plan = world.settle().last
    assert not world.pods
    assert not [each for each in world.owned if each[0] == SERVICES]
    assert plan.wake_at == world.now + timedelta(seconds=1)
    assert world.phase == "Pending"
    assert world.condition("Running")[:2] == ("False", "CreationRefused")  # type: ignore[index]
    world.refusals, _ = (), world.advance(1).step()
    assert world.pods
    world.settle().run().settle()
    assert world.condition("Running")[0] == "True"  # type: ignore[index]


def test_pods_under_way_go_on_without_a_service_that_is_refused() -> None:
    world = World(pytorch(policy="OnFailure")).running()
    (service,) = [each for each in world.owned if each[0] == SERVICES]
    del world.owned[service]
    world.refusals = (Refusal(*service, 403, "no right", world.now),)
    world.settle()
    assert len(world.pods) == 4
    assert world.phase == "Running"


def test_a_viewer_that_is_refused_holds_up_no_pods() -> None:
    world = World(pytorch(tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    world.refusals = (Refusal(TENSOR_BOARDS, world.workload.base, 403, "no right", world.now),)
    world.settle()
    assert len(world.pods) == 4
    assert not [each for each in world.owned if each[0] == TENSOR_BOARDS]


def test_a_viewer_whose_name_is_taken_holds_up_no_pods() -> None:
    """It is told while the job is not up, and in the job's status until the name is free."""
    world = World(pytorch(workers=1, tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    (board,) = (each for each in world.workload.dependents if each.status_field)
    until = world.now + timedelta(seconds=4)
    world.conflicts = (Conflict(TENSOR_BOARDS, board.name, "TensorBoard default/mine", until),)
    world.settle()
    assert len(world.pods) == 1
    assert "held by TensorBoard default/mine" in world.messages("NameConflict")[0]
    world.run().settle()
    assert (world.phase, world.last.wake_at) == ("Running", until)
    assert world.status is not None
    link = world.status["tensorboard"]
    assert (link["action"], link["type"]) == ("Create", "Warning")
    assert "the name is held by TensorBoard default/mine; delete that object" in link["note"]
    world.conflicts = ()
    world.settle()
    assert (TENSOR_BOARDS, board.name) in world.owned
    assert "held" not in world.status["tensorboard"]["note"]


def test_a_viewer_that_is_refused_does_not_hide_what_keeps_the_job_from_running() -> None:
    world = World(pytorch(workers=1, tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    (board,) = (each for each in world.workload.dependents if each.status_field)
    world.refusals = (Refusal(TENSOR_BOARDS, board.name, 403, "no right", world.now),)
    world.settle()
    assert world.condition("Running")[1] == "CreationRefused"  # type: ignore[index]
    assert world.status is not None
    assert "no right" in world.status["tensorboard"]["note"]
    (pod,) = world.pods.values()
    scheduled = {"type": "PodScheduled", "status": "False", "message": "no room"}
    pod["status"]["conditions"] = [scheduled]
    world.settle()
    assert world.condition("Running")[1] == "Unschedulable"  # type: ignore[index]


def test_a_name_held_by_somebody_else_is_told_and_not_taken() -> None:
    world = World(generic(service={"ports": [{"port": 80}]}))
    world.conflicts = (Conflict(SERVICES, "train-worker-0", "Service default/train-worker-0"),)
    world.settle()
    assert world.phase == "Pending"
    assert world.condition("Running")[1] == "NameConflict"  # type: ignore[index]
    assert "train-worker-0" in world.messages("NameConflict")[0]
    assert not world.pods
    world.conflicts = ()
    world.settle().run().settle()
    assert world.phase == "Running"


def test_a_taken_name_is_tried_again_and_told_until_it_is_free() -> None:
    """As when a job was created anew before the Services of its namesake were collected."""
    world = World(generic(service={"ports": [{"port": 80}]}))
    until = world.now + timedelta(seconds=4)
    world.conflicts = (Conflict(SERVICES, "train-worker-0", "GenericJob train", until),)
    plan = world.settle().look()
    assert plan.wake_at == until
    world.advance(4)
    names = [action.name for action in world.step().actions]
    assert names == ["train-worker-0"], "the pods wait for it"
    assert world.condition("Running")[1] == "NameConflict"  # type: ignore[index]
    assert len(world.messages("NameConflict")) == 1


def test_a_pod_whose_name_somebody_else_holds_is_told_and_the_others_are_created() -> None:
    world = World(pytorch(workers=2))
    until = world.now + timedelta(seconds=2)
    world.conflicts = (Conflict(PODS, world.name("1"), "Pod default/foreign", until),)
    world.settle()
    assert sorted(world.pods) == [world.name("0")]
    assert world.last.wake_at == until
    assert world.condition("Running")[:2] == ("False", "NameConflict")  # type: ignore[index]
    assert len(world.messages("NameConflict")) == 1
    world.advance(2).settle()
    assert len(world.pods) == 2


@pytest.mark.parametrize("replica", ["0", "9"])
def test_a_refusal_of_what_is_there_or_not_wanted_any_more_is_not_told(replica: str) -> None:
    world = World(torchrun(workers=2)).running()
    world.refusals = (Refusal(PODS, world.name(replica), 403, "quota", world.now),)
    world.advance(100).exit("1", 1).settle()
    assert world.condition("Running")[1] == "-"  # type: ignore[index]


def test_a_pod_that_only_a_finalizer_holds_is_deleted_by_force_once() -> None:
    world = World(pytorch(workers=1)).running()
    world.take(world.name("0"), grace=0).step()
    plan = world.advance(1000).look()
    assert (plan.actions, plan.wake_at) == ((), None)


def test_a_pod_group_takes_its_second_name() -> None:
    world = World(pytorch(**SCHEDULED))
    world.conflicts = (Conflict(POD_GROUPS, "train", "PodGroup default/train"),)
    world.settle()
    base = world.workload.base
    assert (POD_GROUPS, base) in world.owned
    labels = world.pods[world.name("0")]["metadata"]["labels"]
    assert labels["scheduler.tensorstack.dev/group-name"] == base
    world.conflicts = ()
    world.settle()
    assert (POD_GROUPS, "train") not in world.owned, "the one that is there is enough"


def test_without_a_gang_scheduler_the_job_waits_and_says_so() -> None:
    world = World(pytorch(**SCHEDULED), Settings(gang_backend=GangBackend.NONE)).settle()
    assert (world.phase, world.pods) == ("Pending", {})
    assert world.condition("Running")[1] == "NoGangScheduler"  # type: ignore[index]
    assert len(world.messages("NoGangScheduler")) == 1


def test_what_the_scheduler_says_is_in_the_condition() -> None:
    world = World(pytorch(workers=1)).settle()
    world.pods[world.name("0")]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "needs 8 nvidia.com/gpu"}
    ]
    world.settle()
    status, reason, message = world.condition("Running")  # type: ignore[misc]
    assert (status, reason) == ("False", "Unschedulable")
    assert message == f"Pod[{world.name('0')}] cannot be scheduled: needs 8 nvidia.com/gpu"


def test_a_stuck_pod_is_deleted_by_force_and_replaced() -> None:
    world = World(pytorch(workers=1)).running()
    world.take(world.name("0"), grace=30)
    plan = world.step()
    assert plan.wake_at == world.now + timedelta(seconds=330)
    world.advance(329.9)
    assert not world.step().actions
    world.advance(0.1)
    forced = [a for a in world.step().actions if isinstance(a, Delete)]
    assert [a.grace_seconds for a in forced] == [0]
    world.settle().run().settle()
    assert (world.phase, world.backoff, world.attempt_of("0")) == ("Running", 0, "2")


def test_a_paused_job_gets_rid_of_stuck_pods_too() -> None:
    world = World(pytorch(workers=1)).running()
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.step()
    world.advance(330).step()
    assert not world.pods


@pytest.mark.parametrize("how", ["phase", "node"])
@pytest.mark.parametrize(("replica", "phase"), [("0", "Unknown"), ("1", "Running")])
def test_unknown_replicas(how: str, replica: str, phase: str) -> None:
    world = World(pytorch(workers=2)).running()
    if how == "phase":
        world.pods[world.name(replica)]["status"]["phase"] = "Unknown"
    else:
        world.pods[world.name(replica)]["spec"]["nodeName"] = "lost"
        world.lost_nodes = frozenset({"lost"})
    world.settle()
    assert world.phase == phase
    assert world.aggregate == {"running": 1, "unknown": 1}


def test_pods_of_another_owner_are_none_of_ours() -> None:
    world = World(pytorch(workers=1)).running()
    world.pods[world.name("0")]["metadata"]["ownerReferences"][0]["uid"] = "other"
    plan = world.look()
    assert not [a for a in plan.actions if isinstance(a, Delete)]


def test_missing_services_are_created_again() -> None:
    world = World(pytorch()).running()
    world.owned.clear()
    world.settle()
    assert len(world.owned) == 1


def test_a_spec_that_changed_behind_our_back_is_told_once() -> None:
    world = World(pytorch()).running()
    world.job["spec"]["runPolicy"] = {"backoffLimit": 9}
    world.settle()
    assert len(world.messages("SpecDrift")) == 1


def test_ignored_fields_are_told_once() -> None:
    world = World(pytorch())
    world.warnings = ("spec.elastic: is ignored",)
    world.settle().settle()
    assert world.messages("IgnoredField") == ["spec.elastic: is ignored"]


def test_a_thousand_new_replicas_are_one_event() -> None:
    world = World(pytorch(workers=1000)).settle()
    assert world.messages("NewReplica") == ["Create 1000 replicas for the first time."]


def test_an_invalid_job_fails_and_says_why() -> None:
    plan = plan_invalid(
        InvalidObject("GenericJob", "x", 2, ["spec.a: no", "spec.b: never"]), None, START
    )
    assert plan.status is not None
    assert (plan.status["phase"], plan.status["observedGeneration"]) == ("Failed", 2)
    failed = next(c for c in plan.status["conditions"] if c["type"] == "Failed")
    assert failed["reason"] == "InvalidSpec"
    assert failed["message"] == "GenericJob x is invalid: spec.a: no; spec.b: never"
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "InvalidSpec")]
    again = plan_invalid(InvalidObject("GenericJob", "x", 2, ["spec.a: no"]), plan.status, START)
    assert again.status is None
    later = plan_invalid(InvalidObject("GenericJob", "x", 3, ["spec.a: no"]), plan.status, START)
    assert later.status == plan.status | {"observedGeneration": 3}


def test_nothing_changes_without_news() -> None:
    world = World(pytorch()).running()
    world.advance(5)
    plan = world.step()
    assert (plan.status, plan.actions, plan.events) == (None, (), ())


def test_times_of_conditions_move_with_their_status_only() -> None:
    world = World(pytorch(workers=1)).settle()
    before = world.status
    world.advance(60).run().settle()
    assert before is not None
    assert world.status is not None
    times = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    assert times["Completed"] == render(START)
    assert times["Running"] == render(START + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2026-01-01T12:00:00Z", 0), ("2026-01-01T12:00:00.250000Z", 0.25), ("", None), (None, None)],
)
def test_timestamps(text: str | None, seconds: float | None) -> None:
    moment = parse(text)
    if seconds is None:
        assert moment is None
    else:
        assert moment == START + timedelta(seconds=seconds)
        assert render(moment) == text


def tensorboard(phase: str | None) -> dict[str, Any]:
    world = World(pytorch(workers=1, tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    world.settle()
    board = next(obj for obj in world.owned.values() if obj["kind"] == "TensorBoard")
    if phase:
        board["status"] = {"phase": phase}
    world.settle()
    assert world.status is not None
    found: dict[str, Any] = world.status["tensorboard"]
    return found | {"uid": board["metadata"]["uid"]}


@pytest.mark.parametrize(
    ("phase", "ready", "type_"),
    [("Running", True, "Normal"), ("Failed", False, "Warning"), (None, False, "Normal")],
)
def test_the_tensorboard_is_told(phase: str | None, ready: bool, type_: str) -> None:
    status = tensorboard(phase)
    assert (status["ready"], status["type"], status["action"]) == (ready, type_, "NOP")
    assert status["dependent"]["uid"] == status["uid"]
    assert status["dependent"]["kind"] == "TensorBoard"


def test_what_keeps_the_tensorboard_from_being_used_is_told_in_the_jobs_status() -> None:
    world = World(pytorch(workers=1, tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}}))
    world.settle()
    board = next(obj for obj in world.owned.values() if obj["kind"] == "TensorBoard")
    ready = {"type": "Ready", "status": "False", "message": "there is no program"}
    logs = {"type": "LogsServed", "status": "False", "reason": "NotServed", "message": "not shown"}
    board["status"] = {"phase": "Failed", "conditions": [ready], "url": "http://x"}
    world.settle()
    assert world.status is not None
    link = world.status["tensorboard"]
    assert link["note"].endswith("is not ready: there is no program")
    assert link["url"] == "http://x"
    board["status"] = {"phase": "Running", "conditions": [logs], "url": "http://x"}
    world.settle()
    link = world.status["tensorboard"]
    assert link["note"].endswith("is ready; not shown")
    assert (link["ready"], link["type"]) == (True, "Warning")


def test_the_tensorboard_outlives_the_end() -> None:
    job = pytorch(
        workers=1,
        tensorboardSpec={"logDir": {"pvc": [{"name": "m"}]}},
        runPolicy={"cleanUpPolicy": "All"},
    )
    world = World(job).running()
    world.exit("0", 0).settle()
    assert sorted(obj["kind"] for obj in world.owned.values()) == ["Service", "TensorBoard"]


def test_settings_are_durations_that_make_sense() -> None:
    local = Settings.local()
    assert local.backoff_base_seconds < Settings().backoff_base_seconds
    assert replace(local, plain_processes=True) == Settings.local(plain_processes=True)


def test_of_several_stuck_pods_the_first_that_is_due_sets_the_time() -> None:
    world = World(pytorch(workers=3)).running()
    world.take(world.name("1"), 10).take(world.name("2"), 40)
    world.step()
    assert world.last.wake_at is not None
    limit = timedelta(seconds=10 + world.settings.force_delete_seconds)
    assert world.last.wake_at <= START + limit
    world.advance(limit.total_seconds()).step()
    forced = [a.name for a in world.last.actions if isinstance(a, Delete) and a.grace_seconds == 0]
    assert forced == [world.name("1")]


def test_a_replica_that_waits_for_its_delay_holds_up_none_that_comes_after_it() -> None:
    world = World(generic(workers=3, limit=3)).running()
    world.exit("0", 1).evict("2").settle()
    assert world.name("0") not in world.pods
    assert world.pods[world.name("2")]["status"]["phase"] == "Pending"


@pytest.mark.parametrize("replica", ["0", "9"])
def test_a_name_that_was_taken_of_what_is_there_or_not_wanted_any_more_is_not_told(
    replica: str,
) -> None:
    world = World(generic()).running()
    world.conflicts = (Conflict(PODS, world.name(replica), "Pod default/other"),)
    world.remove("1").settle()
    assert world.condition("Running")[1] == "-"  # type: ignore[index]
    assert world.messages("NameConflict") == []
