"""`runPolicy.podFailurePolicy`: which rule decides, and what follows (decision 114)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.queueing.kueue import FLAVOR, Kueue
from tests.unit.lifecycle.test_modes import SCHEDULED, resize, set_paused
from tests.unit.lifecycle.world import World, colossalai, deepspeed, elastic, generic, pytorch
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.scheduling.kueue_workload import WORKLOADS
from trainyard.kinds.shared.workload import (
    ExitCodes,
    FailureAction,
    FailureRule,
    ReplicaType,
    RestartPolicy,
)
from trainyard.lifecycle import texts
from trainyard.lifecycle.observed import Flavor, Pod
from trainyard.lifecycle.replica_state import Exit, Ruling, State, exit_of
from trainyard.lifecycle.restart import pod_failure_rules

Rule = dict[str, Any]


def codes(action: str, *values: int, operator: str = "In", **more: Any) -> Rule:
    container = {"containerName": more.pop("container")} if "container" in more else {}
    return {
        "action": action,
        "onExitCodes": {"operator": operator, "values": list(values), **container},
        **more,
    }


def conditions(action: str, kind: str = "DisruptionTarget", status: str = "True") -> Rule:
    return {"action": action, "onPodConditions": [{"type": kind, "status": status}]}


def reasons(action: str, *names: str, **more: Any) -> Rule:
    return {"action": action, "onReasons": list(names), **more}


def policy(*rules: Rule, **more: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": list(rules)}, **more}


def disrupted(world: World, replica: str, reason: str = "EvictionByEvictionAPI") -> None:
    world.pods[world.name(replica)]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": reason}
    ]


# The table of Kubernetes.


def _pod(
    *ended: int | None, init: tuple[int, ...] = (), held: tuple[str, str] | None = None
) -> Pod:
    def statuses(name: str, values: tuple[int | None, ...]) -> list[dict[str, Any]]:
        states = (
            {"terminated": {"exitCode": value}} if value is not None else {} for value in values
        )
        return [{"name": f"{name}{i}", "state": state} for i, state in enumerate(states)]

    status: dict[str, Any] = {
        "phase": "Failed",
        "containerStatuses": statuses("main", ended),
        "initContainerStatuses": statuses("init", init),
    }
    if held:
        status["conditions"] = [{"type": held[0], "status": held[1], "reason": "x"}]
    return Pod.decode({"metadata": {"name": "p", "uid": "u"}, "status": status})


def _in(action: str, *values: int, is_in: bool = True) -> FailureRule:
    return FailureRule(FailureAction(action), codes=ExitCodes(None, is_in, frozenset(values)))


def _on(action: str, kind: str, status: str = "True") -> FailureRule:
    return FailureRule(FailureAction(action), conditions=((kind, status),))


TARGET = "DisruptionTarget"
KUBERNETES: dict[str, tuple[tuple[FailureRule, ...], Pod, str | None]] = {
    "no policy rules": ((), _pod(2), None),
    "ignore rule matched for exit codes": ((_in("Ignore", 1, 2, 3),), _pod(2), "Ignore 0"),
    "ignore rule matched on negative exit codes": (
        (_in("Ignore", -1073741676, -1073741510),),
        _pod(-1073741510),
        "Ignore 0",
    ),
    "FailJob rule matched for exit codes": ((_in("FailJob", 1, 2, 3),), _pod(2), "FailJob 0"),
    "successful containers are skipped by the rules": (
        (_in("FailJob", 111, is_in=False),),
        _pod(111, 0, init=(0,)),
        None,
    ),
    "NotIn operator and value 0": ((_in("FailJob", 0, is_in=False),), _pod(1, 0), "FailJob 0"),
    "second jobfail rule matched for exit codes": (
        (_in("Count", 1, 2, 3), _in("FailJob", 4, 5, 6)),
        _pod(6),
        "FailJob 1",
    ),
    "count rule matched for exit codes": ((_in("Count", 1, 2, 3),), _pod(None, 2), "Count 0"),
    "ignore rule matched for pod conditions": (
        (_on("Ignore", TARGET),),
        _pod(held=(TARGET, "True")),
        "free",
    ),
    "ignore rule matches by the status=False": (
        (_on("Ignore", TARGET, "False"),),
        _pod(held=(TARGET, "False")),
        "Ignore 0",
    ),
    "ignore rule matches by the status=Unknown": (
        (_on("Ignore", TARGET, "Unknown"),),
        _pod(held=(TARGET, "Unknown")),
        "Ignore 0",
    ),
    "ignore rule does not match when status for pattern is False, but actual True": (
        (_on("Ignore", TARGET, "False"),),
        _pod(held=(TARGET, "True")),
        "free",
    ),
    "ignore rule does not match when status for pattern is True, but actual False": (
        (_on("Ignore", TARGET),),
        _pod(held=(TARGET, "False")),
        None,
    ),
    "job fail rule matched for pod conditions": (
        (_on("FailJob", TARGET),),
        _pod(held=(TARGET, "True")),
        "FailJob 0",
    ),
    "count rule matched for pod conditions": (
        (_on("Count", TARGET),),
        _pod(held=(TARGET, "True")),
        "Count 0",
    ),
    "no rule matched": (
        (
            _in("Count", 8, is_in=False),
            _in("Ignore", 1, 2, 3),
            _in("FailJob", 5, 6, 7, is_in=False),
            _on("Count", "ResourceLimitExceeded"),
            _on("Ignore", TARGET),
        ),
        _pod(32),
        "Count 0",
    ),
    "expected matching rule returned": (
        (_on("FailJob", "MaxFailedIndexesExceeded"), _on("Count", TARGET)),
        _pod(held=(TARGET, "True")),
        "Count 1",
    ),
    "an init container": ((_in("FailJob", 3),), _pod(init=(3,)), "FailJob 0"),
}


@pytest.mark.parametrize(("rules", "pod", "expected"), KUBERNETES.values(), ids=list(KUBERNETES))
def test_rules_decide_as_those_of_kubernetes(
    rules: tuple[FailureRule, ...], pod: Pod, expected: str | None
) -> None:
    """The cases of TestMatchPodFailurePolicy (pkg/controller/job), as far as they are about known
    actions and operators; what is taken away is free here without a rule."""
    end = exit_of(pod, None)
    assert end is not None
    anyone = ReplicaType("worker", 1, RestartPolicy.ON_FAILURE, 3)
    state, judged = pod_failure_rules.apply_rules(
        rules, anyone, State.FAILED, end, pod, pod.container_statuses
    )
    assert state is State.FAILED
    if expected is None or expected == "free":
        assert judged == end
        assert judged.free is (expected == "free")
        return
    assert judged.ruling is not None
    index = judged.ruling.text.removeprefix("podFailurePolicy.rules[")[0]
    assert f"{judged.ruling.action.value} {index}" == expected
    assert judged.free is (judged.ruling.action is FailureAction.IGNORE)


# What follows in a job.


def test_a_rule_fails_the_job_at_once() -> None:
    world = World(pytorch(run_policy=policy(codes("FailJob", 7), codes("FailJob", 42)))).running()
    world.exit("2", 42).advance(5).settle()
    name = world.name("2")
    assert world.phase == "Failed"
    assert world.backoff == 0
    assert world.condition("Failed") == (
        "True",
        "PodFailurePolicy",
        (
            f"PyTorchTrainingJob train has failed: {name} failed with exit code 42; "
            "podFailurePolicy.rules[1] (exit code 42) fails the job"
        ),
    )
    assert world.messages("ReplicaFailure") == [f"Pod[{name}] exited with error code 42"]
    assert world.status is not None
    assert world.status["attempts"][-1]["message"].endswith("fails the job")


def test_what_is_ignored_costs_nothing_and_comes_back() -> None:
    world = World(
        pytorch(policy="Never", run_policy=policy(codes("Ignore", 42), backoffLimit=0))
    ).running()
    for attempt in "234":
        world.exit("2", 42).settle().advance(360).settle()
        assert {world.attempt_of(r) for r in "0123"} == {attempt}
        world.run().settle()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]
    assert world.messages("Restart")[0] == (
        f"Pod[{world.name('2')}] exited with error code 42\nRestarting 4 replicas, at no cost: "
        "podFailurePolicy.rules[0] (exit code 42) ignores this failure."
    )
    assert not [event for event in world.events if event.type == "Warning"]


@pytest.mark.parametrize("restart_policy", ["Never", "ExitCode"])
def test_restart_overrides_the_policy_as_long_as_the_budget_lasts(restart_policy: str) -> None:
    run_policy = policy(codes("Restart", 75), backoffLimit=1)
    world = World(pytorch(policy=restart_policy, run_policy=run_policy)).running()
    world.exit("2", 75).settle().advance(10).settle()
    assert world.backoff == 1
    assert world.messages("Restart") == [
        (
            f"Pod[{world.name('2')}] exited with error code 75\n"
            "Restarting 4 replicas in 10 s (1 of 1 restarts): "
            "podFailurePolicy.rules[0] (exit code 75) restarts after this failure."
        )
    ]
    world.run().settle().exit("2", 75).advance(5).settle()
    assert world.phase == "Failed"
    assert world.condition("Failed")[1] == "BackoffLimitExceeded"  # type: ignore[index]


@pytest.mark.parametrize("restart_policy", ["Never", "OnFailure"])
def test_count_leaves_it_to_the_policy_and_ends_the_search(restart_policy: str) -> None:
    rules = policy(codes("Count", 42), codes("FailJob", 42))
    world = World(pytorch(policy=restart_policy, run_policy=rules)).running()
    world.exit("2", 42).advance(5).settle()
    if restart_policy == "Never":
        assert world.condition("Failed")[1] == "Failed"  # type: ignore[index]
    else:
        assert (world.phase, world.backoff) == ("Pending", 1)
        assert "(exit code 42) counts this failure." in world.messages("Restart")[0]


def test_without_a_match_the_restart_policy_decides() -> None:
    world = World(pytorch(run_policy=policy(codes("FailJob", 42)))).running()
    world.exit("2", 3).advance(5).settle()
    assert world.backoff == 1
    assert "podFailurePolicy" not in world.messages("Restart")[0]


@pytest.mark.parametrize("gone", ["evicted", "deleted", "by the eviction API"])
def test_what_is_taken_away_can_be_counted(gone: str) -> None:
    rules = policy(reasons("Count", "Deleted"), conditions("Count"))
    world = World(pytorch(run_policy=rules)).running()
    if gone == "evicted":
        world.evict("2")
    else:
        if gone != "deleted":
            disrupted(world, "2")
        world.take(world.name("2"))
    world.settle()
    assert world.backoff == 1
    assert "counts this failure." in world.messages("Restart")[0]


@pytest.mark.parametrize("rule", [conditions("FailJob"), reasons("FailJob", "Evicted")])
def test_what_is_taken_away_can_fail_the_job(rule: Rule) -> None:
    world = World(pytorch(run_policy=policy(rule))).running()
    world.evict("2").settle()
    assert world.phase == "Failed"
    what = "condition DisruptionTarget" if "onPodConditions" in rule else "reason Evicted"
    assert world.condition("Failed")[2].endswith(  # type: ignore[index]
        f"was taken away (Evicted); podFailurePolicy.rules[0] ({what}) fails the job"
    )


def test_a_pod_that_somebody_deletes_is_no_disruption() -> None:
    """As in Kubernetes, where only the cluster's own doing has the condition."""
    world = World(pytorch(run_policy=policy(conditions("FailJob")))).running()
    world.take(world.name("2")).settle()
    assert (world.phase, world.backoff) == ("Pending", 0)


def test_counted_under_never_it_fails_for_good_once() -> None:
    """It is told as failed then, and nobody creates its pod again."""
    rules = {"podFailurePolicy": {"rules": [conditions("Count")]}}
    world = World(
        generic(workers=2, policy="Never", successRules=[{"worker": [0]}], runPolicy=rules)
    ).running()
    disrupted(world, "1")
    world.take(world.name("1")).settle()
    for _ in range(3):
        world.advance(60).settle()
    assert world.phase == "Running"
    assert world.aggregate == {"running": 1, "failed": 1}
    assert len(world.messages("ReplicaFailure")) == 1
    assert list(world.pods) == [world.name("0")]


def test_the_exit_code_of_what_was_taken_away_says_nothing() -> None:
    """Here Kubernetes would fail the job, unless a rule about disruptions comes first."""
    world = World(pytorch(run_policy=policy(codes("FailJob", 0, operator="NotIn")))).running()
    world.exit("2", 137).evict("2").settle()
    assert (world.phase, world.backoff) == ("Pending", 0)


def test_an_end_that_was_told_is_not_revived_by_an_eviction_later() -> None:
    rules = policy(conditions("Ignore"), reasons("Ignore", "Evicted"))
    world = World(
        generic(workers=2, policy="Never", successRules=[{"worker": [0]}], runPolicy=rules)
    ).running()
    world.exit("1", 3).settle()
    disrupted(world, "1")
    world.evict("1").settle().advance(60).settle()
    assert world.aggregate == {"running": 1, "failed": 1}
    assert world.attempt_of("1") == "1"


def test_the_cause_decides_and_not_the_peers_that_die_with_it() -> None:
    rules = policy(codes("FailJob", 1), codes("Ignore", 42))
    world = World(pytorch(run_policy=rules)).running()
    world.exit("0", 1).exit("1", 1).exit("2", 42).exit("3", 1).settle()
    assert (world.phase, world.backoff) == ("Pending", 0)


def test_a_cause_that_comes_to_be_seen_after_its_peers_decides() -> None:
    rules = policy(codes("FailJob", 42), codes("Ignore", 1))
    world = World(pytorch(run_policy=rules)).running()
    world.exit("0", 1).exit("1", 1).settle()
    assert world.phase == "Running", "an exit 1 may be the fallout of another"
    world.advance(1).exit("2", 42).advance(2).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


def test_a_lost_peer_that_is_seen_later_comes_before_the_launch_that_lost_it() -> None:
    """The launch ends with 137 when it loses a worker, which may be seen before the loss is."""
    job = deepspeed(policy="ExitCode", run_policy=policy(codes("FailJob", 137)))
    world = World(job).running()
    world.exit("0", 137).settle()
    assert world.phase == "Running"
    world.evict("1").settle()
    assert (world.phase, world.backoff) == ("Pending", 0)


def test_what_a_rule_names_is_acted_upon_at_once() -> None:
    world = World(pytorch(run_policy=policy(codes("Restart", 75)))).running()
    world.exit("2", 75).settle()
    assert world.backoff == 1


def test_without_fallout_to_wait_for_the_decision_is_made() -> None:
    world = World(pytorch(workers=1, run_policy=policy(codes("FailJob", 3)))).running()
    world.exit("0", 3).settle()
    assert world.phase == "Failed"


def test_a_rule_may_be_about_some_types_only() -> None:
    rules = policy(codes("FailJob", 3, replicaTypes=["launcher"]), codes("Ignore", 3))
    for replica, phase in (("launcher", "Failed"), ("worker-0", "Pending")):
        world = World(colossalai(runPolicy=rules)).running()
        world.exit(replica, 3).advance(5).settle()
        assert world.phase == phase


def test_the_training_container_decides_unless_another_is_named() -> None:
    rules = policy(codes("Ignore", 143), codes("FailJob", 9, container="helper"))
    for helper, phase in ((143, "Pending"), (9, "Failed")):
        job = pytorch(workers=1, run_policy=rules)
        containers = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
        containers.append({"name": "helper", "image": "i"})
        world = World(job).running()
        world.exit("0", 5)
        state = {"terminated": {"exitCode": helper, "reason": "Error"}}
        world.pods[world.name("0")]["status"]["containerStatuses"][1]["state"] = state
        world.settle()
        assert (world.phase, world.backoff) == (phase, 1 if phase == "Pending" else 0)
    assert "(exit code 9 of container helper)" in world.condition("Failed")[2]  # type: ignore[index]


@pytest.mark.parametrize("rule", [codes("FailJob", 143), reasons("FailJob", "Error")])
def test_a_sidecar_that_is_ended_with_its_pod_decides_only_where_it_is_named(rule: Rule) -> None:
    """Here the replica itself ends with 5, for lack of memory."""
    for container, phase in (("", "Pending"), ("beside", "Failed")):
        if container and "onReasons" in rule:
            continue
        rules = policy(codes("FailJob", 143, container=container) if container else rule)
        job = generic(workers=1, limit=3, runPolicy=rules)
        beside = {"name": "beside", "image": "i", "restartPolicy": "Always"}
        job["spec"]["replicaSpecs"][0]["template"]["spec"]["initContainers"] = [beside]
        world = World(job).running().exit("0", 5, reason="OOMKilled")
        state = {"terminated": {"exitCode": 143, "reason": "Error"}}
        status = world.pods[world.name("0")]["status"]
        status["initContainerStatuses"] = [{"name": "beside", "state": state}]
        world.settle()
        assert world.phase == phase


def test_the_reason_of_a_container_counts() -> None:
    rules = policy(reasons("FailJob", "OOMKilled"))
    for job in (pytorch(workers=1, run_policy=rules), generic(workers=1, limit=3, runPolicy=rules)):
        world = World(job).running()
        world.exit("0", 137, reason="OOMKilled").settle()
        assert "(reason OOMKilled)" in world.condition("Failed")[2]  # type: ignore[index]


def test_a_node_that_is_lost_has_a_reason() -> None:
    rules = policy(reasons("FailJob", "NodeLost"))
    world = World(pytorch(run_policy=rules)).running()
    world.pods[world.name("2")]["spec"]["nodeName"] = "gone"
    world.lost_nodes = frozenset({"gone"})
    world.exit("0", 1).settle()
    assert "(reason NodeLost)" in world.condition("Failed")[2]  # type: ignore[index]


def test_generic_replicas_are_judged_each_for_itself() -> None:
    rules = {"podFailurePolicy": {"rules": [codes("Ignore", 7), codes("FailJob", 8)]}}
    world = World(
        generic(workers=3, limit=0, successRules=[{"worker": [0]}], runPolicy=rules)
    ).running()
    world.exit("1", 7).settle().run().settle()
    assert world.attempt_of("1") == "2"
    assert world.status is not None
    assert world.status["restartCount"] == 0
    world.exit("2", 8).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


def test_success_wins_over_a_rule() -> None:
    world = World(pytorch(run_policy=policy(codes("FailJob", 42)))).running()
    world.exit("2", 42).exit("0", 0).settle()
    assert world.phase == "Succeeded"


def test_an_elastic_job_does_not_go_on_without_what_fails_it() -> None:
    rules = policy(codes("FailJob", 42))
    world = World(elastic(1, 3, 4, policy="Never", run_policy=rules)).running()
    world.advance(600).settle().exit("2", 42).advance(5).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


def test_the_end_of_a_queue_s_time_goes_before_a_rule() -> None:
    world = World(pytorch(run_policy=policy(conditions("Ignore")))).running()
    disrupted(world, "2", "QueueMaxDuration")
    world.take(world.name("2")).settle()
    assert world.condition("Failed")[1] == "QueueMaxDuration"  # type: ignore[index]


def test_a_pod_that_goes_before_the_decision_is_judged_by_what_was_told() -> None:
    rules = policy(codes("FailJob", 42, container="main"))
    world = World(pytorch(run_policy=rules)).running()
    world.exit("2", 42).settle()
    assert world.phase == "Running", "another may have failed before"
    world.remove("2").advance(5).settle()
    assert world.phase == "Failed"


def test_exit_is_what_it_was_where_no_rule_matches() -> None:
    anyone = ReplicaType("worker", 1, RestartPolicy.ON_FAILURE, 3)
    end = Exit(5, "Error")
    rules = (_in("Ignore", 6),)
    assert pod_failure_rules.apply_rules(rules, anyone, State.FAILED, end, None, ()) == (
        State.FAILED,
        end,
    )


def test_a_newcomer_of_an_elastic_job_is_judged_alone() -> None:
    """It is ignored, or fails the job; its peers keep their pods until then."""
    rules = policy(codes("Ignore", 43), codes("FailJob", 42), backoffLimit=0)
    world = World(elastic(1, 2, 4, policy="Never", run_policy=rules)).running()
    world.advance(600).settle()
    world.job["spec"]["elastic"]["expectedReplicas"] = 3
    world.settle().run().settle()
    kept = {r: world.pods[world.name(r)]["metadata"]["uid"] for r in "01"}
    world.exit("2", 43).settle().advance(60).settle().run().settle()
    assert kept == {r: world.pods[world.name(r)]["metadata"]["uid"] for r in "01"}
    assert (world.phase, world.backoff) == ("Running", 0)
    world.exit("2", 42).advance(5).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


@pytest.mark.parametrize(("code", "phase"), [(42, "Failed"), (1, "Running")])
def test_a_survivor_is_excused_unless_a_rule_names_its_exit(code: int, phase: str) -> None:
    rules = policy(codes("FailJob", 1, 42), backoffLimit=0)
    world = World(elastic(1, 2, 4, policy="Never", run_policy=rules)).running()
    world.advance(600).settle()
    world.job["spec"]["elastic"]["expectedReplicas"] = 3
    world.settle().exit("0", code).settle().advance(5).settle()
    assert world.phase == phase


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("how", ["evicted", "deleted"])
def test_what_was_taken_away_beside_one_that_is_lost_is_restarted_by_its_rule(
    how: str, *, is_gone: bool
) -> None:
    """The pass that gives up the one leaves the other to the next, which sees less of its pod."""
    rules = policy(codes("Count", 1), conditions("Restart"))
    world = World(elastic(1, 3, 4, policy="ExitCode", run_policy=rules)).running()
    resize(world, 4)
    world.settle().run().settle()
    world.exit("3", 1).advance(5)
    lose(world, "2", how)
    world.step()
    if is_gone:
        world.remove("2")
    world.settle()
    assert world.backoff == 1
    assert any(
        "rules[1] (condition DisruptionTarget) restarts" in t for t in world.messages("Restart")
    )
    assert not any("had changed" in text for text in world.messages("Restart"))


def test_one_that_was_lost_by_a_rule_and_not_seen_to_end_is_counted_as_it_is_told() -> None:
    """It was told as taken away, and as failed in the same breath."""
    rules = policy(reasons("Restart", "Deleted"), backoffLimit=0)
    world = World(elastic(1, 3, 4, policy="Never", run_policy=rules)).running()
    resize(world, 4)
    world.settle().remove("2")
    world.settle()
    assert world.aggregate == {"running": 2, "deleted": 1, "creating": 1}
    text = "2 of 4 replicas are running or have completed."
    assert world.condition("Running") == ("True", "-", text)


def beside(job: dict[str, Any]) -> World:
    """The job with a helper beside each training container, running."""
    containers = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    containers.append({"name": "helper", "image": "i"})
    return World(job).running()


@pytest.mark.parametrize(
    ("helper", "generic_job", "phase"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, True, "Failed"),
        ({"exitCode": 137, "reason": "OOMKilled"}, False, "Pending"),
        ({"exitCode": 0, "reason": "OOMKilled"}, True, "Pending"),
    ],
)
def test_the_reason_of_another_container_counts_in_a_generic_job(
    helper: dict[str, Any], generic_job: bool, phase: str
) -> None:
    rules = policy(reasons("FailJob", "OOMKilled"))
    job = generic(workers=1, limit=3, runPolicy=rules)
    world = beside(job if generic_job else pytorch(workers=1, run_policy=rules))
    world.exit("0", 1)
    statuses = world.pods[world.name("0")]["status"]["containerStatuses"]
    statuses[1]["state"] = {"terminated": helper}
    world.settle()
    assert world.phase == phase


def test_the_reason_of_the_pod_counts_beside_that_of_the_container() -> None:
    world = World(pytorch(run_policy=policy(reasons("FailJob", "DeadlineExceeded")))).running()
    world.exit("2", 1)
    world.pods[world.name("2")]["status"]["reason"] = "DeadlineExceeded"
    world.settle()
    assert "(reason DeadlineExceeded)" in world.condition("Failed")[2]  # type: ignore[index]


def test_who_took_a_pod_away_is_a_reason() -> None:
    world = World(pytorch(run_policy=policy(reasons("FailJob", "TerminationByKubelet")))).running()
    disrupted(world, "2", "TerminationByKubelet")
    world.evict("2").settle()
    assert "(reason TerminationByKubelet)" in world.condition("Failed")[2]  # type: ignore[index]


@pytest.mark.parametrize(("status", "told"), [("False", "Custom False"), ("True", "Custom")])
def test_a_condition_is_told_with_a_status_that_is_not_true(status: str, told: str) -> None:
    world = World(pytorch(run_policy=policy(conditions("FailJob", "Custom", status)))).running()
    held = {"type": "Custom", "status": status}
    world.pods[world.name("2")]["status"]["conditions"] = [held]
    world.exit("2", 1).settle()
    assert f"(condition {told})" in world.condition("Failed")[2]  # type: ignore[index]


@pytest.mark.parametrize(
    "rule",
    [
        reasons("FailJob", "NodeLost", replicaTypes=["worker"]),
        conditions("FailJob", "Custom"),
    ],
)
def test_a_replica_that_cannot_be_reached_is_judged_by_its_type_and_pod(rule: Rule) -> None:
    world = World(pytorch(run_policy=policy(rule))).running()
    world.pods[world.name("2")]["spec"]["nodeName"] = "gone"
    held = {"type": "Custom", "status": "True"}
    world.pods[world.name("2")]["status"]["conditions"] = [held]
    world.lost_nodes = frozenset({"gone"})
    world.exit("0", 1).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


@pytest.mark.parametrize("run_policy", [{}, policy(codes("Ignore", 42))])
def test_what_was_taken_away_just_after_its_peers_failed_is_the_cause(
    run_policy: dict[str, Any],
) -> None:
    """Whole seconds, and clocks of nodes, blur the order."""
    world = World(pytorch(run_policy=run_policy)).running()
    world.exit("0", 1).advance(1)
    world.take(world.name("2")).settle()
    assert world.backoff == 0


# Pods that go because their job is paused, or has ended.


LOSSES = {
    rule["action"] + " " + next(iter(rule.keys() - {"action"})): rule
    for action in ("FailJob", "Count", "Restart")
    for rule in (reasons(action, "Deleted", "Evicted"), conditions(action))
}


def lose(world: World, replica: str, how: str) -> None:
    """Evicted by the kubelet, which keeps the pod, or through the API, which deletes it."""
    disrupted(world, replica)
    if how == "evicted":
        world.exit(replica, 137).evict(replica)
    elif "deletionTimestamp" not in world.pods[world.name(replica)]["metadata"]:
        world.take(world.name(replica))


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("how", ["evicted", "deleted"])
@pytest.mark.parametrize("moment", ["before", "while"])
@pytest.mark.parametrize("rule", LOSSES.values(), ids=list(LOSSES))
def test_what_is_taken_from_a_paused_job_costs_nothing(
    rule: Rule, moment: str, how: str, *, is_gone: bool
) -> None:
    """The pause deletes its pods anyway, and a resumed job has none to miss."""
    job = generic(policy="Never", limit=3, runPolicy=policy(rule))
    world = set_paused(World(job).running())
    if moment == "before":
        lose(world, "0", how)
    world.step()
    if moment == "while":
        lose(world, "0", how)
    world.step()
    assert world.aggregate == {"deleted": 2}
    if is_gone:
        world.settle()
        assert world.aggregate == {"deleted": 2}
    assert world.condition("ReplicaFailure") == ("False", "-", texts.NO_FAILURE)
    set_paused(world, False).step()
    world.settle().run().settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 2})
    assert world.status is not None
    assert world.status["restartCount"] == 0
    assert not world.messages("Restart")


@pytest.mark.parametrize("rule", LOSSES.values(), ids=list(LOSSES))
def test_what_is_taken_from_a_job_with_its_admission_costs_nothing(rule: Rule) -> None:
    """Seen in one pass; as from one that is paused."""
    job = generic(policy="Never", limit=3, runPolicy=policy(rule), **SCHEDULED)
    world, kueue = World(job, Settings(gang_backend=GangBackend.KUEUE)), Kueue(4)
    spot = {**FLAVOR, "metadata": {"name": "spot", "uid": "f"}}
    world.flavors["spot"] = Flavor.decode(spot)

    def admit() -> World:
        for _ in range(4):
            world.settle()
            turned = kueue.turn(
                [o for (of, _), o in world.owned.items() if of == WORKLOADS], world.now
            )
            world.owned |= {(WORKLOADS, each["metadata"]["name"]): each for each in turned}
        return world.settle().run().settle()

    assert admit().phase == "Running"
    lose(world, "0", "deleted")
    world.owned = {key: obj for key, obj in world.owned.items() if key[0] != WORKLOADS}
    world.step()
    assert world.condition("ReplicaFailure") == ("False", "-", texts.NO_FAILURE)
    assert (admit().phase, world.aggregate) == ("Running", {"running": 2})
    assert world.status is not None
    assert world.status["restartCount"] == 0
    assert not world.messages("Restart")


def test_an_own_end_before_a_pause_is_judged_after_it() -> None:
    world = World(generic(runPolicy=policy(codes("FailJob", 42)))).running()
    set_paused(world.exit("0", 42)).settle()
    assert (world.phase, world.aggregate) == ("Paused", {"failed": 1, "deleted": 1})
    set_paused(world, False).settle()
    assert world.condition("Failed")[1] == "PodFailurePolicy"  # type: ignore[index]


@pytest.mark.parametrize("rule", LOSSES.values(), ids=list(LOSSES))
def test_what_goes_after_the_end_has_not_failed(rule: Rule) -> None:
    world = World(pytorch(workers=3, run_policy=policy(rule, cleanUpPolicy="All"))).running()
    world.exit("0", 0).step()
    world.step()
    disrupted(world, "1")
    world.step()
    world.settle()
    assert world.aggregate == {"deleted": 3}
    assert world.condition("ReplicaFailure")[0] == "False"  # type: ignore[index]


@pytest.mark.parametrize("action", ["Count", "Restart"])
def test_a_loss_that_counts_is_told_as_one_under_exit_code(action: str) -> None:
    """Nothing is waited for: the exit code of what was taken away says nothing."""
    run_policy = policy(conditions(action), backoffLimit=0)
    world = World(pytorch(policy="ExitCode", run_policy=run_policy)).running()
    lose(world, "1", "deleted")
    world.step()
    lost = f"{world.name('1')} was taken away (EvictionByEvictionAPI)"
    message = f"PyTorchTrainingJob train has failed: {lost}"
    assert world.condition("Failed") == ("True", "Failed", message)


# What failed for good is not judged again.


GOES_ON = {
    "rules of its own": generic(
        workers=3,
        policy="Never",
        limit=3,
        failureRules=[{"worker": [2]}],
        successRules=[{"worker": [0]}],
    ),
    "elastic": elastic(1, 3, 4, policy="Never"),
}


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("how", ["evicted", "deleted", "by itself"])
@pytest.mark.parametrize("second", ["FailJob", "Ignore", "Restart"])
@pytest.mark.parametrize("job", GOES_ON.values(), ids=list(GOES_ON))
def test_what_failed_for_good_by_a_rule_is_not_judged_by_the_next(
    job: dict[str, Any], second: str, how: str, *, is_gone: bool
) -> None:
    """The first rule that matches decides, also when what it was about is not seen any more."""
    rules = policy(conditions("Count"), conditions("Count", "Odd"), codes(second, 137))
    world = World({**job, "spec": {**job["spec"], "runPolicy": rules}}).running()
    if how == "by itself":
        world.exit("1", 137).pods[world.name("1")]["status"]["conditions"] = [
            {"type": "Odd", "status": "True"}
        ]
    else:
        lose(world, "1", how)
    world.step()
    condition = world.condition("ReplicaFailure")
    if is_gone:
        world.remove("1")
    world.step()
    world.settle()
    assert (world.phase, world.aggregate) == ("Running", {"running": 2, "failed": 1})
    assert world.condition("ReplicaFailure") == condition
    assert len(world.messages("ReplicaFailure")) == 1
    assert not world.messages("Restart")


def test_what_failed_for_good_by_a_rule_comes_back_when_its_job_grows() -> None:
    rules = policy(conditions("Count"))
    world = World(elastic(1, 3, 5, policy="Never", run_policy=rules)).running()
    lose(world, "1", "deleted")
    world.step()
    world.settle()
    resize(world, 4).settle().run().settle()
    assert world.aggregate == {"running": 4}
    world.exit("1", 0).settle()
    assert world.aggregate == {"running": 3, "succeeded": 1}


@pytest.mark.parametrize("action", list(FailureAction))
@pytest.mark.parametrize("mark", ["", "is_cause", "by_code", "taken"])
def test_a_ruling_is_kept_as_it_is(action: FailureAction, mark: str) -> None:
    marks = {name: name == mark for name in ("is_cause", "by_code", "taken")}
    ruling = Ruling(action, "podFailurePolicy.rules[0] (reason Deleted)", **marks)
    assert Ruling.decode(json.loads(json.dumps(ruling.encode()))) == ruling
