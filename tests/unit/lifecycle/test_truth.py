"""Conditions and events say what the counts beside them say (decision 104).

Every pass that any of these tests makes is judged besides: see `World.look`.
"""

from __future__ import annotations

import pytest

from tests.unit.lifecycle.world import World, colossalai, elastic, generic, pytorch
from trainyard.lifecycle import texts

WELL = texts.RUNNING


def test_an_elastic_job_that_goes_on_without_a_replica_does_not_say_that_all_run() -> None:
    world = World(elastic(1, 3, 3, policy="Never")).running()
    world.advance(600).exit("2", 7).settle()
    text = "2 of 3 replicas are running or have completed; 1 has failed."
    assert world.condition("Running") == ("True", "-", text)
    failed = f"Pod[{world.name('2')}] exited with error code 7"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", failed)


def test_a_failure_that_its_deadline_meets_is_told_all_the_same() -> None:
    world = World(pytorch(workers=2, run_policy={"activeDeadlineSeconds": 60})).running()
    world.advance(61).exit("1", 3).settle()
    assert world.condition("Failed")[1] == "DeadlineExceeded"  # type: ignore[index]
    failed = f"Pod[{world.name('1')}] exited with error code 3"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", failed)


def test_replicas_that_the_end_of_their_job_stops_have_not_failed() -> None:
    world = World(pytorch(workers=2, run_policy={"activeDeadlineSeconds": 60})).running()
    world.advance(60).settle()
    for replica in "01":
        world.exit(replica, 143)
        world.pods[world.name(replica)]["status"]["reason"] = "DeadlineExceeded"
    world.settle()
    assert world.aggregate == {"failed": 2}
    text = "No replica has failed by itself; 2 were stopped."
    assert world.condition("ReplicaFailure") == ("False", "-", text)


@pytest.mark.parametrize("job", [pytorch(policy="Never"), colossalai(workers=4)])
def test_a_success_does_not_hide_a_replica_that_failed(job: dict[str, object]) -> None:
    world = World(job).running()
    first = "0" if "train-1b255-worker-0" in world.pods and job["kind"] != "ColossalAIJob" else ""
    world.exit("1", 5).exit(first or "launcher", 0).settle()
    assert world.phase == "Succeeded"
    failed = f"Pod[{world.name('1')}] exited with error code 5"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", failed)


def test_a_replica_that_fails_after_the_success_of_its_job_is_told() -> None:
    world = World(pytorch(workers=2)).running().exit("0", 0).settle()
    assert world.condition("ReplicaFailure") == ("False", "-", WELL)
    world.exit("1", 5).settle()
    assert world.condition("ReplicaFailure")[0] == "True"  # type: ignore[index]
    assert (world.phase, world.aggregate) == ("Succeeded", {"succeeded": 1, "failed": 1})


def test_the_success_of_one_kind_is_told_of_its_replicas_too() -> None:
    world = World(colossalai()).running().exit("launcher", 0).settle()
    text = texts.ALL_FINISHED
    assert world.condition("ReplicaFailure") == ("False", "Finished", text)


def test_before_replicas_run_none_is_said_to() -> None:
    world = World(pytorch(workers=2)).settle()
    assert world.condition("ReplicaFailure") == ("False", "-", texts.NO_FAILURE)
    assert world.condition("Completed") == ("False", "NotFinished", texts.NOT_FINISHED)
    world.run("0").settle()
    assert world.condition("ReplicaFailure") == ("False", "-", texts.NO_FAILURE)
    world.run("1").settle()
    assert world.condition("ReplicaFailure") == ("False", "-", WELL)
    assert world.condition("Completed") == ("False", "NotFinished", texts.STILL_RUNNING)


def test_a_failure_is_told_before_it_is_decided_what_follows() -> None:
    """While the cause of an incident is not certain, its policy being ExitCode."""
    world = World(pytorch(workers=3, policy="ExitCode")).running()
    world.exit("1", 1).step()
    text = "2 of 3 replicas are running or have completed; 1 has failed."
    assert (world.phase, world.condition("ReplicaFailure")[0]) == ("Running", "True")  # type: ignore[index]
    assert text in str(world.condition("Running"))


def test_a_replica_that_its_queue_removed_has_not_failed() -> None:
    world = World(generic()).running()
    target = {"type": "DisruptionTarget", "status": "True", "reason": "QueueMaxDuration"}
    world.pods[world.name("0")]["status"]["conditions"] = [target]
    world.take(world.name("0")).settle()
    assert world.condition("Failed")[1] == "QueueMaxDuration"  # type: ignore[index]
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]
    assert not world.messages("ReplicaFailure")


def test_one_that_the_cluster_stopped_is_said_to_be_taken_for_the_reason_that_it_gave() -> None:
    world = World(pytorch(workers=2, policy="Never")).running().exit("1", 137)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    world.pods[world.name("1")]["status"]["conditions"] = [target]
    world.settle()
    (told,) = world.messages("Restart")
    assert "was taken away (TerminationByKubelet)" in told


# What others write into a status (decision 105).


def life(phase: str) -> World:
    """A job in that situation."""
    world = World(pytorch(workers=2, policy="Never" if phase == "Failed" else "OnFailure"))
    if phase == "Pending":
        return world.settle()
    world.running()
    if phase == "Paused":
        world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    elif phase == "Succeeded":
        world.exit("0", 0).exit("1", 0)
    elif phase == "Failed":
        world.exit("1", 5)
    world.settle()
    assert world.phase == phase
    return world


PHASES = ("Pending", "Running", "Paused", "Succeeded", "Failed")


@pytest.mark.parametrize("real", PHASES)
@pytest.mark.parametrize("forged", [*PHASES, "Resuming", "Unknown", "", "Nonsense"])
def test_a_phase_that_somebody_else_wrote_is_put_right(real: str, forged: str) -> None:
    world = life(real)
    assert world.status is not None
    right, pods, told = world.status, dict(world.pods), len(world.events)
    world.status = {**right, "phase": forged}
    world.settle()
    assert world.status == right
    assert (world.pods, len(world.events)) == (pods, told)


@pytest.mark.parametrize("real", PHASES)
@pytest.mark.parametrize("kind", ["Running", "Failed", "Completed", "Paused"])
@pytest.mark.parametrize("phase", ["", "Succeeded", "Failed"])
def test_conditions_that_somebody_else_turned_round_are_put_right(
    real: str, kind: str, phase: str
) -> None:
    world = life(real)
    assert world.status is not None
    right, pods = world.status, dict(world.pods)
    conditions = {c["type"]: dict(c) for c in right["conditions"]}
    if kind not in conditions:
        conditions[kind] = {"type": kind, "status": "False", "lastTransitionTime": "then"}
    condition = conditions[kind]
    condition["status"] = "False" if condition["status"] == "True" else "True"
    world.status = {**right, "conditions": [*conditions.values()]}
    if phase:
        world.status["phase"] = phase
    world.settle()
    ours = {c["type"]: c["status"] for c in right["conditions"]}
    now = {c["type"]: c["status"] for c in world.status["conditions"]}
    if kind not in ours:  # told as not so, or not at all
        assert now.pop(kind, "False") == "False"
    assert now == ours
    assert (world.status["phase"], world.pods) == (real, pods)


def test_a_job_that_ended_under_an_earlier_version_has_ended() -> None:
    world = life("Succeeded")
    assert world.status is not None
    right = world.status
    internal = {key: value for key, value in right["internal"].items() if key != "ended"}
    world.status = {**right, "internal": internal}
    world.settle()
    assert world.status == right
    assert world.messages("Succeeded") == [texts.FINISHED]


def test_an_end_that_was_erased_is_told_again_as_far_as_it_is_known() -> None:
    world = life("Failed")
    assert world.status is not None
    ended = world.status["completionTime"]
    world.status = {**world.status, "conditions": [], "phase": "Running"}
    del world.status["completionTime"]
    world.settle()
    assert world.condition("Failed") == ("True", "Failed", "PyTorchTrainingJob train has failed.")
    assert (world.phase, world.status["completionTime"]) == ("Failed", ended)


def test_one_replica_that_the_end_of_its_job_stops() -> None:
    world = World(pytorch(workers=1, run_policy={"activeDeadlineSeconds": 60})).running()
    world.advance(60).settle().exit("0", 143)
    world.pods[world.name("0")]["status"]["reason"] = "DeadlineExceeded"
    world.settle()
    text = "No replica has failed by itself; 1 was stopped."
    assert world.condition("ReplicaFailure") == ("False", "-", text)


@pytest.mark.parametrize(
    ("containers", "told"),
    [
        ([{"name": "prep", "role": "Init", "exitCode": 4}], "code 4 (init container prep)"),
        (
            [{"name": "other", "exitCode": 143}, {"name": "main", "exitCode": 5}],
            "code 5",
        ),
        (
            [{"name": "beside", "role": "Sidecar", "exitCode": 9}, {"name": "main", "exitCode": 5}],
            "code 5",
        ),
    ],
)
def test_of_a_pod_that_is_gone_the_end_that_was_told_counts(
    containers: list[dict[str, object]], told: str
) -> None:
    """The controller wrote the failure down, and was not there when the pod went."""
    world = World(pytorch(workers=2, policy="Never")).running()
    assert world.status is not None
    entry = world.status["tasks"][0]["replicas"][1]
    entry |= {"phase": "Failed", "containers": [{"state": "Terminated", **c} for c in containers]}
    world.remove("1").settle()
    failed = f"Pod[{world.name('1')}] exited with error {told}"
    assert world.condition("ReplicaFailure") == ("True", "ErrorInPod", failed)
