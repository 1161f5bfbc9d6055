"""Names of jobs and kinds, and what belongs to a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.client.objects import UID, event, found, job, pod, pod_name, task, views
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_events import event_order, is_about
from trainyard.client.job_lookup import kind_named, together
from trainyard.client.pod_views import PodView, in_order
from trainyard.client.replica_commands import choose_pod
from trainyard.kinds.colossalai.spec import ColossalReplicaSpec
from trainyard.kinds.deepspeed.spec import Worker
from trainyard.kinds.generic.spec import GenericReplicaSpec
from trainyard.kinds.pytorch.spec import PyTorchReplicaSpec
from trainyard.kinds.shared.run_policy import RunPolicy


@pytest.mark.parametrize(
    "text",
    [
        "pj",
        "PJ",
        "pytorchtrainingjob",
        "PyTorchTrainingJob",
        "pytorchtrainingjobs",
        "pytorchtrainingjob.batch.tensorstack.dev",
        "pytorchtrainingjobs.batch.tensorstack.dev",
    ],
)
def test_a_kind_has_many_names(text: str) -> None:
    assert kind_named(text).kind == "PyTorchTrainingJob"


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"no job kind 'mj'.*PyTorchTrainingJob \(pj\)"):
        kind_named("mj")


def test_only_jobs_are_kinds_here() -> None:
    with pytest.raises(CommandError):
        kind_named("Queue")


def test_pods_are_ordered_by_type_and_number() -> None:
    pods = views(pod("worker-10"), pod("worker-2"), pod("ps-0"))
    assert [each.replica for each in in_order(pods)] == ["ps-0", "worker-2", "worker-10"]


@pytest.mark.parametrize(
    ("about", "belongs"),
    [
        (pod_name("worker-0"), True),
        (pod_name("worker-0").removesuffix("-worker-0"), True),
        ("digits-0ther-worker-0", False),
        ("digits", False),
    ],
)
def test_events_of_pods_that_are_gone_still_belong_to_the_job(about: str, belongs: bool) -> None:
    assert is_about(event(about, "x", "y"), found(job())) is belongs


def test_events_of_an_earlier_job_of_the_same_name_do_not_belong() -> None:
    ours, earlier = event("digits", "x", "y"), event("digits", "x", "y")
    ours["involvedObject"] |= {"kind": "PyTorchTrainingJob", "uid": UID}
    earlier["involvedObject"] |= {"kind": "PyTorchTrainingJob", "uid": "another"}
    assert is_about(ours, found(job()))
    assert not is_about(earlier, found(job()))


def test_events_of_one_second_are_in_the_order_in_which_they_were_written() -> None:
    """Kubelets tell whole seconds: by time alone a pod would start before it was created."""
    created, started, later = event("a", "x", "y"), event("b", "x", "y"), event("c", "x", "y")
    created["lastTimestamp"] = "2026-08-02T12:00:05.900000Z"
    created["metadata"]["resourceVersion"] = "99"
    started["lastTimestamp"] = "2026-08-02T12:00:05Z"
    started["metadata"]["resourceVersion"] = "101"
    later["lastTimestamp"] = "2026-08-02T12:00:06Z"
    later["metadata"]["resourceVersion"] = "7"
    assert sorted([later, started, created], key=event_order) == [created, started, later]


def test_without_a_replica_rank_0_is_meant() -> None:
    pods = views(pod("ps-0"), pod("worker-0", labels={"job-role": "master"}))
    assert choose_pod(found(job()), pods) is pods[1]


def test_without_a_master_the_first_replica_of_the_status_is_meant() -> None:
    pods = views(pod("ps-0"), pod("worker-0"))
    listed = job("Running", kind="GenericJob", tasks=[task("Running"), task("Running", kind="ps")])
    assert choose_pod(found(listed), pods) is pods[1]


@pytest.mark.parametrize("text", ["worker-1", pod_name("worker-1")])
def test_a_replica_is_named_shortly_or_by_its_pod(text: str) -> None:
    pods = views(pod("worker-0"), pod("worker-1"))
    assert choose_pod(found(job()), pods, text) is pods[1]


def test_an_unknown_replica_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"no replica worker-7; there are worker-0$"):
        choose_pod(found(job()), views(pod("worker-0")), "worker-7")


def test_a_job_without_pods_has_no_replica() -> None:
    with pytest.raises(CommandError, match=r"has no pods \(Paused\)"):
        choose_pod(found(job("Paused")), [])


@pytest.mark.parametrize(
    ("kind", "replica", "containers", "chosen"),
    [
        ("PyTorchTrainingJob", "worker-0", ("sidecar", "pytorch"), "pytorch"),
        ("PyTorchTrainingJob", "worker-0", ("sidecar", "python"), "python"),
        ("PyTorchTrainingJob", "worker-0", ("main", "worker"), "main"),
        ("DeepSpeedJob", "worker-0", ("pytorch", "worker"), "worker"),
        ("ColossalAIJob", "launcher-0", ("worker", "launcher"), "launcher"),
        ("GenericJob", "worker-0", ("app", "python"), "app"),
    ],
)
def test_the_kind_says_which_container_trains(
    kind: str, replica: str, containers: tuple[str, ...], chosen: str
) -> None:
    view = PodView(pod(replica, containers=containers))
    assert found(job(kind=kind)).training_container(view) == chosen


def test_an_annotation_names_the_default_container() -> None:
    annotated = pod(containers=("pytorch", "web"))
    annotated["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "web"}
    assert found(job()).training_container(PodView(annotated)) == "web"


def test_a_launcher_without_index_is_named_by_its_type() -> None:
    launcher = pod("launcher-0")
    launcher["metadata"]["name"] = pod_name("launcher")
    assert PodView(launcher).replica == "launcher"


def test_one_incident_of_four_replicas_is_one_restart() -> None:
    """As the budget counts it (decision 24), whatever the replicas' own counts."""
    four = [task("Running", "Running", "Running", "Running", restartCount=4)]
    assert found(job("Running", backoffCount=1, tasks=four)).restarts == 1


def test_a_kind_without_a_common_budget_counts_the_restarts_of_its_replicas() -> None:
    assert found(job("Running", kind="GenericJob", restartCount=3)).restarts == 3
    assert found(job(kind="GenericJob")).restarts == 0


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("PyTorchTrainingJob", PyTorchReplicaSpec(type="worker")),
        ("DeepSpeedJob", Worker()),
    ],
)
def test_a_policy_that_the_spec_leaves_out_is_the_models_default(kind: str, spec: Any) -> None:
    policy = found(job(kind=kind)).restart_policy("worker-0")
    assert policy == (spec.restart_policy, RunPolicy().backoff_limit)


@pytest.mark.parametrize("spec", [GenericReplicaSpec(type="a"), ColossalReplicaSpec(type="a")])
@pytest.mark.parametrize("kind", ["GenericJob", "ColossalAIJob"])
def test_so_is_a_limit_of_its_own(kind: str, spec: Any) -> None:
    policy = spec.restart_policy
    assert found(job(kind=kind)).restart_policy("worker-0") == (policy.policy, policy.limit)


@pytest.mark.parametrize(
    ("phase", "fate"),
    [
        ("Succeeded", "has succeeded, and its pod was deleted"),
        ("Failed", "has failed, and its pod was deleted"),
        ("Deleted", "was deleted when the job ended"),
        ("Creating", "has no pod yet"),
    ],
)
def test_of_a_replica_without_a_pod_it_is_told_what_has_become_of_it(phase: str, fate: str) -> None:
    listed = job("Succeeded", tasks=[task("Succeeded", phase)])
    with pytest.raises(CommandError, match=rf"replica worker-1 of .* {fate}"):
        choose_pod(found(listed), views(pod("worker-0")), "worker-1")
    with pytest.raises(CommandError, match=r"no replica worker-7; there are worker-0, worker-1$"):
        choose_pod(found(listed), views(pod("worker-0")), "worker-7")


async def test_what_one_of_several_calls_has_failed_with_is_raised_as_itself() -> None:
    """Not in a group, which nobody who calls the API would catch."""

    async def fail() -> None:
        raise CommandError("as it stands")

    with pytest.raises(CommandError, match="as it stands"):
        await together([fail(), asyncio.sleep(60)])
