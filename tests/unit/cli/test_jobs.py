"""Names of jobs and kinds, and what belongs to a job."""

from __future__ import annotations

import pytest

from tests.unit.cli.objects import UID, event, found, job, pod, pod_name, task
from trainyard.client.eventtime import event_order
from trainyard.client.jobs import in_order, is_about, kind_named, replica_of
from trainyard.client.replicas import choose_pod, training_container
from trainyard.client.target import CommandError


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
    pods = [pod("worker-10"), pod("worker-2"), pod("ps-0")]
    names = [replica_of(each["metadata"]["name"], found(job())) for each in in_order(pods)]
    assert names == ["ps-0", "worker-2", "worker-10"]


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
    master = pod("worker-0", labels={"job-role": "master"})
    assert choose_pod(found(job()), [pod("ps-0"), master]) is master


def test_without_a_master_the_first_replica_of_the_status_is_meant() -> None:
    pods = [pod("ps-0"), pod("worker-0")]
    listed = job("Running", kind="GenericJob", tasks=[task("Running"), task("Running", kind="ps")])
    assert choose_pod(found(listed), pods) is pods[1]


@pytest.mark.parametrize("text", ["worker-1", pod_name("worker-1")])
def test_a_replica_is_named_shortly_or_by_its_pod(text: str) -> None:
    pods = [pod("worker-0"), pod("worker-1")]
    assert choose_pod(found(job()), pods, text) is pods[1]


def test_an_unknown_replica_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"no replica worker-7; there are worker-0$"):
        choose_pod(found(job()), [pod("worker-0")], "worker-7")


def test_a_job_without_pods_has_no_replica() -> None:
    with pytest.raises(CommandError, match=r"has no pods \(Paused\)"):
        choose_pod(found(job("Paused")), [])


@pytest.mark.parametrize(
    ("containers", "chosen"),
    [
        (("sidecar", "pytorch"), "pytorch"),
        (("sidecar", "worker"), "worker"),
        (("main", "other"), "main"),
    ],
)
def test_the_training_container_is_known_by_its_name(
    containers: tuple[str, ...], chosen: str
) -> None:
    assert training_container(pod(containers=containers)) == chosen


def test_an_annotation_names_the_default_container() -> None:
    annotated = pod(containers=("pytorch", "web"))
    annotated["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "web"}
    assert training_container(annotated) == "web"
