"""How jobs end: success, failure, rules, deadline; and what happens to their pods then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.world import (
    START,
    World,
    elastic,
    generic,
    pytorch,
    template,
    torchrun,
)
from trainyard.kinds.shared.workload import ReplicaKey
from trainyard.kube.resources import PODS
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Delete, Patch
from trainyard.lifecycle.completion.completion_rules import (
    format_rule,
    is_met,
    is_success_impossible,
)
from trainyard.lifecycle.observed import Refusal


def test_rank_0_ending_with_0_is_success_whatever_the_others_do() -> None:
    world = World(pytorch(policy="Always")).running()
    world.exit("0", 0).exit("1", 1).settle()
    assert world.phase == "Succeeded"
    assert world.backoff == 0
    assert world.attempt_of("1") == "1", "nothing is restarted after success"


def test_conditions_of_success_as_documented() -> None:
    world = World(pytorch(workers=1)).running()
    world.exit("0", 0).settle()
    finished = texts.FINISHED
    running = texts.RUNNING
    assert world.status is not None
    assert [
        (c["type"], c["status"], c["reason"], c["message"]) for c in world.status["conditions"]
    ] == [
        ("Initialized", "True", "-", texts.INITIALIZED),
        ("Running", "False", "Succeeded", finished),
        ("Failed", "False", "Succeeded", finished),
        ("Completed", "True", "Succeeded", finished),
        ("ReplicaFailure", "False", "-", running),
    ]


def test_a_job_that_fails_before_it_was_seen_to_run_was_initialized() -> None:
    """As when the controller was away between the creation of the pods and their end."""
    world = World(pytorch(policy="Never"))
    world.step()
    world.run().exit("1", 7).settle()
    assert world.phase == "Failed"
    text = texts.INITIALIZED
    assert world.condition("Initialized") == ("True", "-", text)


def test_a_job_that_fails_without_its_pods_was_not_initialized() -> None:
    world = World(pytorch(workers=2, run_policy={"activeDeadlineSeconds": 5})).running()
    world.exit("1", 1).settle()
    assert world.status is not None
    world.status["conditions"] = []
    world.advance(5).settle()
    assert world.phase == "Failed"
    assert "Initialized" not in {c["type"] for c in world.status["conditions"]}


def test_conditions_that_others_wrote_in_part_hold_up_nothing() -> None:
    """Definitions require none of their fields."""
    world = World(pytorch(workers=2)).running()
    assert world.status is not None
    world.status["conditions"] = [{"type": "Running", "status": "True"}, {"type": "Failed"}, {}]
    world.settle()
    assert world.condition("Running") is not None
    world.exit("0", 0).exit("1", 0).settle()
    assert world.phase == "Succeeded"


def test_conditions_while_running_as_documented() -> None:
    world = World(pytorch(workers=1)).running()
    running = texts.RUNNING
    assert world.status is not None
    assert [
        (c["type"], c["status"], c["reason"], c["message"]) for c in world.status["conditions"]
    ] == [
        ("Initialized", "True", "-", texts.INITIALIZED),
        ("Running", "True", "-", running),
        ("Completed", "False", "NotFinished", texts.STILL_RUNNING),
        ("ReplicaFailure", "False", "-", running),
    ]


def test_events_of_a_run() -> None:
    world = World(pytorch(workers=1)).running()
    world.exit("0", 0).settle()
    assert [(e.reason, e.message) for e in world.events] == [
        ("Created", "A PyTorchTrainingJob has been created: train"),
        ("NewReplica", f"Create the replica[{world.name('0')}] for the first time."),
        ("Start", texts.INITIALIZED),
        ("Running", "The job began running at 2026-01-01 12:00:00.00 UTC"),
        ("Succeeded", texts.FINISHED),
    ]


@pytest.mark.parametrize("replica", ["0", "2"])
def test_a_replica_that_failed_for_good_fails_the_job(replica: str) -> None:
    world = World(pytorch(policy="Never")).running()
    world.exit(replica, 7, message="a\nb\nValueError: no data").settle()
    name = world.name(replica)
    text = f"PyTorchTrainingJob train has failed: {name} failed with exit code 7"
    assert world.phase == "Failed"
    assert world.condition("Failed") == ("True", "Failed", text)
    assert world.condition("Completed") == ("True", "Failed", text)
    assert world.condition("Running") == ("False", "Failed", text)
    assert world.condition("ReplicaFailure") == (
        "True",
        "ErrorInPod",
        f"Pod[{name}] exited with error code 7: a\nb\nValueError: no data",
    )
    assert world.messages("ReplicaFailure") == [world.condition("ReplicaFailure")[2]]  # type: ignore[index]
    assert world.messages("Failed") == [text]


def test_the_reason_of_a_failure_is_told() -> None:
    world = World(pytorch(workers=1, policy="Never")).running()
    world.exit("0", 137, reason="OOMKilled").settle()
    assert world.condition("ReplicaFailure")[2].endswith("error code 137 (OOMKilled)")  # type: ignore[index]


def test_a_finished_job_is_told_apart_and_stays_as_it_is() -> None:
    world = World(pytorch(workers=2, run_policy={"cleanUpPolicy": "All"})).running()
    world.exit("0", 0).settle()
    before = world.status
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.advance(3600).settle()
    assert world.phase == "Succeeded"
    assert before is not None
    assert world.status is not None
    assert world.status["completionTime"] == before["completionTime"]
    assert not world.pods


# The main container's end is the replica's.


def with_sidecar(policy: str) -> dict[str, Any]:
    spec = template()
    spec["spec"]["containers"].append({"name": "sidecar", "image": "i"})
    types = [{"type": "worker", "replicas": 2, "restartPolicy": policy, "template": spec}]
    return pytorch(types=types)


def end_main(world: World, replica: str, code: int) -> None:
    statuses = world.pods[world.name(replica)]["status"]["containerStatuses"]
    statuses[0]["state"] = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T12:00:00Z"}}


def test_a_sidecar_does_not_keep_a_job_alive() -> None:
    world = World(with_sidecar("Never")).running()
    end_main(world, "0", 0)
    world.settle()
    assert world.phase == "Succeeded"
    assert world.pods[world.name("0")]["spec"]["activeDeadlineSeconds"] == 1
    assert "activeDeadlineSeconds" not in world.pods[world.name("1")]["spec"]


def test_a_sidecar_does_not_hide_a_failure() -> None:
    world = World(with_sidecar("OnFailure")).running()
    end_main(world, "1", 3)
    world.settle()
    assert world.backoff == 1


def test_a_completed_replica_with_a_sidecar_is_stopped_and_stays_succeeded() -> None:
    world = World(with_sidecar("Never")).running()
    end_main(world, "1", 0)
    world.settle()
    assert world.pods[world.name("1")]["spec"]["activeDeadlineSeconds"] == 1
    world.pods[world.name("1")]["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 1, "succeeded": 1})


# Rules.


@pytest.mark.parametrize(
    ("rule", "met"),
    [
        ({"w": (0,)}, True),
        ({"w": (0, 1)}, True),
        ({"w": (0, 2)}, False),
        ({"w": (0,), "p": (0,)}, False),
        ({}, False),
        ({"w": ()}, False),
    ],
)
def test_a_rule_holds_when_all_its_replicas_do(rule: dict[str, tuple[int, ...]], met: bool) -> None:
    assert is_met(rule, {ReplicaKey("w", 0), ReplicaKey("w", 1)}) is met


def test_rule_text_has_indexes_as_strings() -> None:
    assert format_rule({"worker": (0, 1)}) == '{"worker":["0","1"]}'


RULES: list[tuple[str, dict[str, Any], dict[str, int], str]] = [
    ("all must succeed without rules", {}, {"0": 0}, "Running"),
    ("all succeeded", {}, {"0": 0, "1": 0, "2": 0}, "Succeeded"),
    ("one failed without rules", {}, {"1": 1}, "Failed"),
    ("a success rule", {"successRules": [{"worker": [0]}]}, {"0": 0}, "Succeeded"),
    ("half of a success rule", {"successRules": [{"worker": [0, 1]}]}, {"0": 0}, "Running"),
    (
        "any success rule",
        {"successRules": [{"worker": [0, 1]}, {"worker": [2]}]},
        {"2": 0},
        "Succeeded",
    ),
    ("others may fail", {"successRules": [{"worker": [0]}]}, {"1": 1, "2": 1}, "Running"),
    ("no success rule left", {"successRules": [{"worker": [0]}]}, {"0": 1}, "Failed"),
    (
        "one success rule left",
        {"successRules": [{"worker": [0]}, {"worker": [1]}]},
        {"0": 1},
        "Running",
    ),
    (
        "a failure rule",
        {"successRules": [{"worker": [0]}], "failureRules": [{"worker": [1]}]},
        {"1": 1},
        "Failed",
    ),
    (
        "half of a failure rule",
        {"successRules": [{"worker": [0]}], "failureRules": [{"worker": [1, 2]}]},
        {"1": 1},
        "Running",
    ),
    (
        "success wins",
        {"successRules": [{"worker": [0]}], "failureRules": [{"worker": [1]}]},
        {"0": 0, "1": 1},
        "Succeeded",
    ),
]


@pytest.mark.parametrize(
    ("spec", "ends", "phase"), [case[1:] for case in RULES], ids=[case[0] for case in RULES]
)
def test_rules(spec: dict[str, Any], ends: dict[str, int], phase: str) -> None:
    world = World(generic(workers=3, **spec)).running()
    for replica, code in ends.items():
        world.exit(replica, code)
    world.settle()
    assert world.phase == phase


def test_failure_by_rule_as_documented() -> None:
    world = World(generic(failureRules=[{"worker": [0]}])).running()
    world.exit("0", 1).settle()
    text = 'The job is failed with rule: {"worker":["0"]}'
    assert world.condition("Failed") == ("True", "Failed", text)
    assert world.condition("ReplicaFailure") == (
        "True",
        "ErrorInPod",
        f"Pod[{world.name('0')}] exited with error code 1",
    )


def test_a_replica_with_restarts_left_does_not_count_for_a_failure_rule() -> None:
    world = World(generic(limit=1, failureRules=[{"worker": [0]}])).running()
    world.exit("0", 1).settle()
    assert world.phase == "Running"
    world.advance(10).settle().run().settle().exit("0", 1).settle()
    assert world.phase == "Failed"


@pytest.mark.parametrize(
    "rules",
    [{"failureRules": [{"worker": [1]}]}, {}],
    ids=["a failure rule", "no success rule left"],
)
def test_a_failure_is_blamed_on_the_replica_that_made_it_one(rules: dict[str, Any]) -> None:
    """Not on one with whose loss the job went on."""
    spec = {"successRules": [{"worker": [0]}, {"worker": [1]}], **rules}
    world = World(generic(workers=2, policy="Never", **spec)).running()
    world.exit("0", 5).settle()
    assert world.phase == "Running"
    world.advance(30).exit("1", 7).settle()
    assert world.phase == "Failed"
    text = f"Pod[{world.name('1')}] exited with error code 7"
    assert world.condition("ReplicaFailure")[2] == text  # type: ignore[index]
    assert world.status is not None
    assert world.status["attempts"][-1]["exitCode"] == 7


def test_under_always_success_counts_only_when_the_budget_is_spent() -> None:
    world = World(generic(workers=1, policy="Always", limit=1)).running()
    world.exit("0", 0).settle()
    assert world.phase != "Succeeded"
    world.advance(10).settle().run().settle().exit("0", 0).settle()
    assert world.phase == "Succeeded"


def test_a_succeeded_replica_stays_so_when_its_pod_is_deleted() -> None:
    world = World(generic()).running()
    world.exit("0", 0).settle().remove("0").settle()
    assert len(world.pods) == 1
    world.exit("1", 0).settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize(("decides", "lost", "expected"), [(0, 0, True), (0, 1, False)])
def test_hope_ends_with_the_replica_that_decides(decides: int, lost: int, expected: bool) -> None:
    workload = replace(World(pytorch()).workload, deciding_replica=ReplicaKey("worker", decides))
    assert is_success_impossible(workload, {ReplicaKey("worker", lost)}) is expected


# Deadline.


def deadline(**run_policy: Any) -> World:
    return World(pytorch(run_policy={"activeDeadlineSeconds": 60, **run_policy}))


def test_the_deadline_fires_on_time() -> None:
    world = deadline()
    world.settle().advance(1000).run()
    plan = world.step()
    assert plan.wake_at is not None
    assert (plan.wake_at - world.now).total_seconds() == 60
    world.advance(59.9).settle()
    assert world.phase == "Running"
    world.advance(0.1).settle()
    assert world.phase == "Failed"
    assert world.condition("Failed")[1] == "DeadlineExceeded"  # type: ignore[index]
    assert world.messages("DeadlineExceeded")


def test_waiting_in_a_queue_does_not_count() -> None:
    world = deadline()
    world.settle().advance(1000).settle()
    assert world.phase == "Pending"


def test_success_wins_over_the_deadline() -> None:
    world = deadline().running()
    world.advance(60).exit("0", 0).settle()
    assert world.phase == "Succeeded"


def test_the_deadline_starts_anew_on_resume() -> None:
    world = deadline().running()
    world.advance(50)
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle().advance(50)
    world.job["spec"]["runMode"] = {}
    world.settle().run().settle().advance(50).settle()
    assert world.phase == "Running"
    world.advance(10).settle()
    assert world.phase == "Failed"


def test_restarts_do_not_stop_the_clock() -> None:
    world = deadline().running()
    world.exit("1", 1).settle().advance(59).settle()
    assert world.phase != "Failed"
    world.advance(1).settle()
    assert world.phase == "Failed"


# Clean-up.


def mixed(world: World) -> World:
    """0 ended as told by the test, 1 runs, 2 has completed, 3 has a node and waits."""
    world.settle().run("0", "1", "2").settle()
    world.pods[world.name("3")]["spec"]["nodeName"] = "node"
    return world.exit("2", 0)


@pytest.mark.parametrize(
    ("policy", "code", "left", "stopped"),
    [
        ("None", 0, "0123", ""),
        ("None", 1, "0123", "13"),
        ("Unfinished", 0, "02", ""),
        ("Unfinished", 1, "02", ""),
        ("All", 0, "", ""),
        ("All", 1, "", ""),
    ],
)
def test_clean_up_policies(policy: str, code: int, left: str, stopped: str) -> None:
    world = mixed(World(pytorch(policy="Never", run_policy={"cleanUpPolicy": policy})))
    world.exit("0", code).settle()
    assert world.phase == ("Failed" if code else "Succeeded")
    assert sorted(world.pods) == [world.name(r) for r in left]
    limited = [n for n, pod in world.pods.items() if "activeDeadlineSeconds" in pod["spec"]]
    assert sorted(limited) == [world.name(r) for r in stopped]


@pytest.mark.parametrize("code", [0, 1])
def test_what_clean_up_deletes_is_counted_as_deleted_however_it_had_ended(code: int) -> None:
    """As the founding documents have it; how it had ended stays with it, and what is told of it."""
    world = mixed(World(pytorch(policy="Never", run_policy={"cleanUpPolicy": "All"})))
    world.exit("0", code).step()
    assert world.aggregate.get("succeeded") == 2 - code
    failure = world.condition("ReplicaFailure")
    world.settle().settle()
    assert world.aggregate == {"deleted": 4}
    assert world.status is not None
    replicas = world.status["tasks"][0]["replicas"]
    assert {replica["phase"] for replica in replicas} == {"Deleted"}
    assert [c["exitCode"] for c in replicas[0]["containers"]] == [code]
    assert replicas[0].get("reason") == ("Error" if code else None)
    assert world.condition("ReplicaFailure") == failure


@pytest.mark.parametrize("job", [pytorch(workers=2, policy="Never"), generic()], ids=["pj", "gj"])
def test_who_is_stopped_with_its_job_has_failed_whatever_it_answers(job: dict[str, Any]) -> None:
    """In every kind alike."""
    world = World(job).running()
    world.exit("0", 3).settle().exit("1", 0)
    world.pods[world.name("1")]["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.settle()
    assert world.aggregate == {"failed": 2}
    assert world.status is not None
    reasons = [r["reason"] for t in world.status["tasks"] for r in t["replicas"]]
    assert reasons == ["Error", "Stopped"]


def test_who_is_stopped_at_the_deadline_has_failed_whatever_it_answers() -> None:
    """A script that saves answers SIGTERM with 0, and has not finished its training."""
    limit = {"activeDeadlineSeconds": 5}
    world = World(pytorch(workers=2, run_policy=limit)).running().advance(5)
    world.settle().exit("0", 143).exit("1", 0)
    for pod in world.pods.values():
        pod["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.settle()
    assert world.aggregate == {"failed": 2}
    assert world.status is not None
    assert {r["reason"] for t in world.status["tasks"] for r in t["replicas"]} == {"Stopped"}
    assert world.condition("ReplicaFailure") == ("False", "-", texts.stopped(2))


def test_an_exit_0_after_the_time_of_the_pod_itself_is_no_success() -> None:
    world = World(pytorch(workers=2, policy="Never")).running().exit("1", 0)
    world.pods[world.name("1")]["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    world.settle()
    assert (world.phase, world.aggregate["failed"]) == ("Failed", 1)


@pytest.mark.parametrize("policy", ["None", "Unfinished", "All"])
def test_nothing_runs_after_the_deadline(policy: str) -> None:
    run_policy = {"cleanUpPolicy": policy, "activeDeadlineSeconds": 5}
    world = World(pytorch(run_policy=run_policy)).running().advance(5)
    plan = world.step()
    touched = {action.name for action in plan.actions}
    assert touched == set(world.pods), "in the very pass that ends the job"


@pytest.mark.parametrize("policy", ["Unfinished", "All"])
def test_pods_that_go_at_the_deadline_are_stopped_before_they_are_deleted(policy: str) -> None:
    """The node then ends them for their deadline, without the whole grace period."""
    run_policy = {"cleanUpPolicy": policy, "activeDeadlineSeconds": 5}
    world = World(pytorch(workers=2, run_policy=run_policy)).running().advance(5)
    plan = world.look()
    assert [type(action) for action in plan.actions] == [Patch, Patch, Delete, Delete]
    assert {a.name for a in plan.actions[:2]} == {a.name for a in plan.actions[2:]}


def test_pods_stopped_at_the_deadline_go_even_if_the_controller_died_before_deleting_them() -> None:
    run_policy = {"cleanUpPolicy": "Unfinished", "activeDeadlineSeconds": 5}
    world = World(pytorch(workers=2, run_policy=run_policy)).running().advance(5)
    plan = world.look()
    world.status = dict(plan.status or {})
    for action in plan.actions:
        if isinstance(action, Patch):
            world.apply(action)
    world.exit("0", 143).exit("1", 143)
    for pod in world.pods.values():
        pod["status"]["reason"] = "DeadlineExceeded"
    world.settle()
    assert not world.pods


def test_a_pod_without_a_node_does_not_start_after_a_failure() -> None:
    world = World(pytorch(policy="Never"))
    world.settle().run("0", "1", "2").settle().exit("0", 1).settle()
    assert world.name("3") not in world.pods


def test_the_end_is_written_before_anything_is_cleaned_up() -> None:
    world = World(pytorch(run_policy={"cleanUpPolicy": "All"})).running()
    plan = world.exit("0", 0).look()
    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"
    world.status = plan.status
    world.settle()
    assert not world.pods, "a controller that starts again cleans up"


def test_clean_up_tells_what_was_deleted() -> None:
    world = World(pytorch(run_policy={"cleanUpPolicy": "Unfinished"})).running()
    world.exit("0", 0).settle()
    assert world.aggregate == {"succeeded": 1, "deleted": 3}


def test_a_finished_job_expires() -> None:
    world = World(pytorch(workers=1, run_policy={"ttlSecondsAfterFinished": 30})).running()
    plan = world.exit("0", 0).step()
    assert plan.wake_at is not None
    assert (plan.wake_at - world.now).total_seconds() == 30
    world.advance(29).settle()
    assert not world.deleted
    world.advance(1).step()
    assert world.deleted


# Other ends.


def test_a_queue_limit_ends_the_job() -> None:
    world = World(torchrun()).running()
    pod = world.pods[world.name("1")]
    pod["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "QueueMaxDuration"}
    ]
    world.take(world.name("1")).settle()
    assert world.phase == "Failed"
    assert world.condition("Failed")[1] == "QueueMaxDuration"  # type: ignore[index]


def test_a_success_rule_wins_over_a_queue_limit() -> None:
    world = World(generic(successRules=[{"worker": [0]}])).running()
    world.exit("0", 0)
    world.pods[world.name("1")]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "QueueMaxDuration"}
    ]
    world.take(world.name("1")).settle()
    assert world.phase == "Succeeded"


def test_a_pod_that_the_server_calls_invalid_fails_the_job() -> None:
    world = World(pytorch())
    world.refusals = (Refusal(PODS, world.name("0"), 422, "spec.x: bad", world.now),)
    world.settle()
    assert world.phase == "Failed"
    assert world.condition("Failed")[1] == "InvalidSpec"  # type: ignore[index]
    assert "spec.x: bad" in world.condition("Failed")[2]  # type: ignore[index]


@pytest.mark.parametrize(
    ("lost", "phase"), [("3", "Running"), ("23", "Running"), ("123", "Failed"), ("0", "Failed")]
)
def test_an_elastic_job_goes_on_while_its_minimum_remains(lost: str, phase: str) -> None:
    world = World(elastic(2, 4, 4, policy="Never")).running()
    for replica in lost:
        world.exit(replica, 1)
    world.settle()
    assert world.phase == phase
    if phase == "Running":
        assert world.condition("ReplicaFailure")[0] == "True"  # type: ignore[index]
        assert world.aggregate == {"running": 4 - len(lost), "failed": len(lost)}


@pytest.mark.parametrize("evicted", ["0", "2"])
def test_an_elastic_job_that_lost_a_replica_restarts_others_all_the_same(evicted: str) -> None:
    world = World(elastic(1, 4, 4, policy="Never")).running()
    world.exit("3", 1)
    world.settle()
    before = world.pods[world.name(evicted)]["metadata"]["uid"]
    world.advance(60).evict(evicted).settle()
    world.advance(60).settle().run().settle()
    assert world.pods[world.name(evicted)]["metadata"]["uid"] != before
    assert world.aggregate == {"running": 3, "failed": 1}
    assert (world.phase, world.backoff) == ("Running", 0)


def test_a_pod_whose_attempt_is_over_goes_although_clean_up_keeps_all() -> None:
    """The controller died after it had decided on the restart, and before it deleted the pod."""
    world = World(pytorch(workers=2, policy="Always")).running()
    world.exit("1", 0).advance(10)
    world.status = world.look().status
    world.exit("0", 0).settle()
    assert world.phase == "Succeeded"
    assert list(world.pods) == [world.name("0")]


def test_replicas_that_are_stopped_after_a_failure_are_told_as_stopped() -> None:
    world = World(pytorch(workers=2, policy="Never")).running()
    world.exit("1", 3).settle()
    world.exit("0", 143).pods[world.name("0")]["status"]["reason"] = "DeadlineExceeded"
    world.settle()
    assert world.status is not None
    reasons = [replica.get("reason") for replica in world.status["tasks"][0]["replicas"]]
    assert reasons == ["Stopped", "Error"]


def test_a_job_that_waits_for_its_replicas_wakes_for_its_deadline() -> None:
    world = World(pytorch(workers=2, run_policy={"activeDeadlineSeconds": 60})).running()
    world.advance(5).evict("1").settle()
    assert world.pods[world.name("1")]["status"]["phase"] == "Pending"
    assert world.last.wake_at == START + timedelta(seconds=60)
