"""What `run` knows of jobs and says of them, from objects as the API serves them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainyard.api.run_output import PlainScreen, summary, viewer_summary
from trainyard.client.job_follower import Follower
from trainyard.client.job_view import Job
from trainyard.client.pod_views import PodView
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client

Object = dict[str, Any]


def pod(index: int = 0, phase: str = "Running", kind: str = "worker", **container: Any) -> PodView:
    """A pod of the job `train`."""
    marks = {"trainyard.dev/replica-type": kind, "replica-index": str(index)}
    name = f"train-0abcd-{kind}-{index}"
    metadata = {"uid": name, "namespace": "default", "name": name, "labels": marks}
    statuses = [{"name": "main", "state": container}] if container else []
    return PodView(
        {"metadata": metadata, "status": {"phase": phase, "containerStatuses": statuses}}
    )


def view(phase: str = "Running", *pods: PodView, **status: Any) -> Job:
    """The job `train`."""
    metadata = {"name": "train", "namespace": "default", "uid": "u"}
    obj = {"metadata": metadata, "status": {"phase": phase, **status}}
    return Job(KINDS["PyTorchTrainingJob"], obj, {pod.uid: pod for pod in pods})


def test_pods_are_listed_by_replica_type_as_the_status_has_them_then_by_index() -> None:
    tasks = [{"type": "ps"}, {"type": "worker"}]
    job = view("Running", pod(10), pod(2), pod(0, kind="ps"), tasks=tasks)
    assert [each.replica for each in job.ordered_pods()] == ["ps-0", "worker-2", "worker-10"]


def test_the_summary_of_a_failure_has_what_the_job_says_where_no_card_can_be_had() -> None:
    conditions = [{"type": "Failed", "status": "True", "message": "it has failed"}]
    job = view("Failed", pod(1), conditions=conditions)
    assert list(summary(job, Path("/logs"), seconds=2.04)) == [
        "PyTorchTrainingJob train: Failed after 2.0 s, 0 restarts",
        "  it has failed",
        "  logs: /logs",
    ]


def test_the_summary_of_a_success_is_short() -> None:
    job = view("Succeeded", pod(0, "Succeeded", terminated={"exitCode": 0}), backoffCount=1)
    assert list(summary(job, None, seconds=60)) == [
        "PyTorchTrainingJob train: Succeeded after 60.0 s, 1 restart"
    ]


def test_one_incident_of_four_replicas_is_one_restart() -> None:
    """What `list`, `show` and kubectl say as well."""
    tasks = [{"type": "worker", "restartCount": 4}]
    job = view("Succeeded", backoffCount=1, tasks=tasks)
    assert next(summary(job, None, seconds=1)).endswith(" 1 restart")


def test_plain_lines_tell_each_phase_once_and_every_restart() -> None:
    out = io.StringIO()
    screen = PlainScreen(names_jobs=False, out=out)
    counts = {"running": 2, "failed": 0}
    with screen:
        for job in (
            view("Pending"),
            view("Running", aggregate=counts),
            view("Running", aggregate=counts),
            view("Running", backoffCount=1),
            view("Succeeded", aggregate={"running": 1, "succeeded": 1}),
        ):
            screen.job_changed(job)
        screen.log_lines(job, "worker-1", ["the last line"])
    assert out.getvalue().splitlines() == [
        "train: Running (2 running)",
        "train: restarts: 1",
        "[worker-1] the last line",
        "train: Succeeded",
    ], "as counts of replicas may be those of a moment before"


def test_each_of_several_jobs_has_its_own_time() -> None:
    follower = Follower(Client.unix("/nowhere"), [view("Running")], Told())
    job = next(iter(follower.jobs.values()))
    assert job.uid not in follower.over_at
    follower.job_seen(view("Succeeded").obj)
    first = follower.over_at[job.uid]
    follower.job_seen(view("Succeeded").obj)
    assert follower.over_at == {job.uid: first}


@pytest.mark.parametrize(
    ("names_jobs", "prefix"), [(False, "[worker-0]"), (True, "[train/worker-0]")]
)
def test_lines_name_their_job_where_there_are_several(names_jobs: bool, prefix: str) -> None:
    out = io.StringIO()
    PlainScreen(names_jobs=names_jobs, out=out).log_lines(view(), "worker-0", ["text", "more"])
    assert out.getvalue() == f"{prefix} text\n{prefix} more\n"


class Told:
    """A screen that keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def job_changed(self, job: Job) -> None:
        """Not looked at."""

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        """Not looked at."""

    def warning(self, about: str, message: str) -> None:
        self.warnings.append(f"{about}: {message}")

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Unhealthy", "Startup probe failed: its command ended with 1: not yet"),
        ("DeadlineExceeded", "train has failed: it was active longer than its deadline of 3 s."),
    ],
)
def test_what_a_start_goes_through_and_what_the_verdict_says_is_no_warning(
    reason: str, message: str
) -> None:
    screen = Told()
    follower = Follower(Client.unix("/nowhere"), [view("Running")], screen)
    about = {"uid": "u", "name": "train"}
    event = {"involvedObject": about, "type": "Warning", "reason": reason, "message": message}
    follower.event_seen(event)
    assert screen.warnings == []


def test_a_warning_that_comes_before_its_pod_is_told_once_the_pod_is_seen() -> None:
    screen = Told()
    follower = Follower(Client.unix("/nowhere"), [view("Pending")], screen)
    about = {"uid": "p", "name": "train-0"}
    event = {"involvedObject": about, "type": "Warning", "reason": "R", "message": "mind this"}
    follower.event_seen(event)
    assert screen.warnings == []
    marks = {"trainyard.dev/job-uid": "u"}
    follower.pod_seen(
        {"metadata": {"uid": "p", "namespace": "default", "name": "train-0", "labels": marks}}
    )
    assert screen.warnings == ["train-0: mind this"]


def test_a_pod_elsewhere_that_names_a_job_is_none_of_its_pods() -> None:
    follower = Follower(Client.unix("/nowhere"), [view("Running")], Told())
    marks = {"trainyard.dev/job-uid": "u"}
    for namespace in ("elsewhere", "default"):
        metadata = {"uid": namespace, "namespace": namespace, "name": "train-0", "labels": marks}
        follower.pod_seen({"metadata": metadata})
    [job] = follower.jobs.values()
    assert list(job.pods) == ["default"]


def test_a_tensorboard_is_told_when_it_can_be_opened_and_when_it_cannot_each_once() -> None:
    screen = Told()
    follower = Follower(Client.unix("/nowhere"), [view("Pending")], screen)
    starting = {"type": "Normal", "note": "not ready", "url": "http://127.0.0.1:31000"}
    failed = {**starting, "type": "Warning", "note": "there is no program"}
    ready = {**starting, "ready": True, "note": "ready"}
    for viewer in (starting, failed, failed, starting, ready, ready):
        job = {"metadata": {"uid": "u", "name": "train"}, "status": {"tensorboard": viewer}}
        follower.job_seen(job)
    assert screen.warnings == ["train: there is no program"]
    assert screen.notes == ["train: TensorBoard: http://127.0.0.1:31000"]


@pytest.mark.parametrize(
    ("ready", "keeps", "line"),
    [
        (True, False, "TensorBoard ends with this command; with --keep it stays"),
        (True, True, "TensorBoard: http://127.0.0.1:31000"),
        (False, True, "TensorBoard is not ready yet: trainyard show train"),
    ],
)
def test_the_summary_says_what_becomes_of_the_tensorboard(
    ready: bool, keeps: bool, line: str
) -> None:
    job = view("Succeeded", tensorboard={"ready": ready, "url": "http://127.0.0.1:31000"})
    assert viewer_summary(job, keeps=keeps) == f"  {line}"


def unplaced(index: int, text: str) -> PodView:
    """A pod that found no place."""
    obj = pod(index, "Pending").obj
    refused = {"type": "PodScheduled", "status": "False", "message": text}
    obj["status"] = {"phase": "Pending", "conditions": [refused]}
    return PodView(obj)


def test_a_job_never_fits_where_none_of_its_replicas_ever_does() -> None:
    never, later = "needs 2 nvidia.com/gpu, this machine has 0", "needs 2 cpu, 1 are free"
    two = {"aggregate": {"pending": 2, "running": 0}}
    assert view("Pending", unplaced(0, never), unplaced(1, never), **two).never_fits == never
    for others in (
        (unplaced(0, never),),
        (unplaced(0, never), unplaced(1, later)),
        (unplaced(0, never), pod(1, "Pending")),
        (unplaced(0, never), pod(1)),
        (),
    ):
        assert not view("Pending", *others, **two).never_fits
    assert not view("Pending").never_fits


def test_the_summary_of_a_job_that_never_fits_says_why() -> None:
    text = "needs 2 nvidia.com/gpu, this machine has 0"
    job = view("Pending", unplaced(0, text), aggregate={"pending": 1})
    assert list(summary(job, Path("/logs"), seconds=1)) == [
        f"PyTorchTrainingJob train cannot run here: {text}"
    ]
