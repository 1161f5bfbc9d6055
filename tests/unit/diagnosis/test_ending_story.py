"""`explain` tells who was asked to end when, what was saved, and who was killed after the grace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.objects import (
    Object,
    ago,
    condition,
    event,
    job,
    pod_name,
    situation,
)
from trainyard import diagnosis
from trainyard.cli.commands.explain import render

KILLED = "Container pytorch did not end within its grace period, and is killed"


def asked(replica: str, age: float) -> Object:
    about = pod_name(replica)
    return event(about, "Killing", "Stopping container pytorch", warns=False, age=age)


def killed(replica: str, age: float) -> Object:
    return event(pod_name(replica), "Killing", KILLED, warns=False, age=age)


def story(obj: Object, *events: Object) -> str:
    seen = situation(obj, events=events)
    return render(seen, diagnosis.causes(seen))


def paused(command: list[str] | None = None, **status: Any) -> Object:
    container = {"name": "pytorch", "image": "python", "command": command or ["python", "x.py"]}
    replica = {"type": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    spec = {"runMode": {"pause": {"enabled": True}}, "replicaSpecs": [replica]}
    attempts = [{"number": 1, "startTime": ago(300)}]
    return job("Paused", spec=spec, attempts=attempts, **status)


def test_who_was_asked_and_what_was_saved_after_that() -> None:
    made = {"path": "/ckpt/7.pt", "step": 7, "time": ago(57)}
    obj = paused(progress={"checkpoint": made})
    before = asked("worker-1", 400)  # of an attempt before
    text = story(obj, before, asked("worker-0", 60), asked("worker-1", 60))
    assert "Also: its replicas were asked to end (SIGTERM)" in text
    assert "UTC, 60s ago: worker-0, worker-1" in text
    assert "saved 3s after that: /ckpt/7.pt, step 7" in text
    assert "killed" not in text


def test_that_nothing_was_saved_any_more() -> None:
    obj = paused(progress={"checkpoint": {"path": "/ckpt/7.pt", "time": ago(90)}})
    text = story(obj, asked("worker-0", 60), killed("worker-0", 30))
    assert "nothing was saved after that; 30s before: /ckpt/7.pt" in text
    assert "killed after their grace period: worker-0" in text
    assert "save in less than terminationGracePeriodSeconds (30 s)" in text


def test_a_shell_that_keeps_the_signal_to_itself_is_named() -> None:
    obj = paused(["bash", "-c", "python x.py | tee log"])
    text = story(obj, asked("worker-0", 60), killed("worker-0", 30))
    assert text.count("the shell keeps SIGTERM from python") == 1
    assert "save in less" not in text


@pytest.mark.parametrize(
    ("reason", "events", "is_told"),
    [
        ("DeadlineExceeded", [asked("worker-0", 60)], True),
        ("Failed", [asked("worker-0", 60)], False),
        ("Failed", [asked("worker-0", 60), killed("worker-0", 55)], True),
        ("DeadlineExceeded", [], False),
    ],
)
def test_of_a_failed_job_it_is_told_where_it_matters(
    reason: str, events: list[Object], *, is_told: bool
) -> None:
    failed = condition("Failed", "True", reason, "it ran too long")
    obj = job("Failed", conditions=[failed], startTime=ago(100), completionTime=ago(50))
    assert ("asked to end" in story(obj, *events)) == is_told
