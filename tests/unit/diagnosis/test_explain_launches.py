"""What `trainyard explain` says of launches over ssh that wait, or never started."""

from __future__ import annotations

import pytest

from tests.unit.client.objects import Object, ago, condition, event, job, pod, pod_name, situation
from trainyard import diagnosis
from trainyard.cli.commands.explain import render
from trainyard.client.log_tails import Tail
from trainyard.kinds.shared.workload import LAUNCHED_PATH

WORKER_1 = pod_name("worker-1")


def launching(started: bool = False) -> Object:
    """worker-0, which has come up 250 s ago."""
    found = pod("worker-0", "Running")
    found["spec"]["containers"][0]["startupProbe"] = {
        "exec": {"command": ["/bin/sh", "-c", f"test -e {LAUNCHED_PATH}"]}
    }
    found["status"]["containerStatuses"] = [
        {
            "name": "pytorch",
            "started": started,
            "ready": started,
            "state": {"running": {"startedAt": ago(250)}},
        }
    ]
    return found


def launched(words: str) -> Object:
    message = f"Startup probe failed: trainyard: {words}\n"
    return event(pod_name("worker-0"), "Unhealthy", message)


def explain(
    *events: Object, logs: dict[str, list[str]] | None = None, started: bool = False
) -> str:
    obj = job("Running", kind="DeepSpeedJob", spec={"runPolicy": {"launchTimeoutSeconds": 900}})
    tails = {name: Tail(lines) for name, lines in (logs or {}).items()}
    found = situation(obj, (launching(started), pod("worker-1", "Running")), events, logs=tails)
    return render(found, diagnosis.causes(found))


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Connection refused", "no sshd listens there"),
        ("its name cannot be found: Name or service not known", "find each other by DNS"),
        ("the name server does not answer", "find each other by DNS"),
        ("something else than ssh answers on port 2222", "another container of the pod"),
        ("timed out", "NetworkPolicy"),
        ("its session ended with exit code 3", "start-up files"),
    ],
)
def test_host_reason_time_and_advice_are_told(reason: str, advice: str) -> None:
    text = explain(launched(f"waiting for worker-1: {reason}"))
    assert f"its launch has not started for 4m10s: waiting for worker-1: {reason}" in text
    assert "which may take 900 s in all" in text
    assert advice in text
    assert "--replica worker-1`" in text
    assert "Unhealthy" not in text
    assert "nothing is wrong" not in text


def test_the_words_of_sshd_are_evidence() -> None:
    lines = ["other output", "trainyard: sshd: fatal: no hostkeys available"]
    text = explain(launched("waiting for worker-1: Connection refused"), logs={WORKER_1: lines})
    assert "worker-1: sshd: fatal: no hostkeys available" in text


def test_the_end_of_a_launchers_log_is_evidence_where_no_rank_has_begun() -> None:
    logs = {pod_name("worker-0"): ["Traceback", "ValueError: too many values to unpack"]}
    text = explain(launched("colossalai run was started, but no rank has begun"), logs=logs)
    assert "| ValueError: too many values to unpack" in text


def test_a_launch_that_does_not_say_why_is_told_of_all_the_same() -> None:
    assert "it does not say yet what it waits for" in explain()


def test_a_launch_that_has_started_is_no_trouble() -> None:
    assert "nothing is wrong" in explain(launched("waiting for x: y"), started=True)


def test_hosts_that_differ_are_told_of_while_the_job_runs() -> None:
    text = "The launch has started, but its hosts differ: torch differs: 2.3 on a; 2.1 on b."
    told_so = condition("Launched", "True", "HostsDiffer", text)
    obj = job("Running", kind="DeepSpeedJob", conditions=[told_so])
    warned = event("digits", "HostsDiffer", text)
    found = situation(obj, (launching(started=True),), (warned,))
    shown = render(found, diagnosis.causes(found))
    assert shown.count("torch differs: 2.3 on a; 2.1 on b") == 1
    assert "give all replicas the same image" in shown
    assert "nothing is wrong" not in shown


def test_a_launch_that_has_still_to_say_how_its_hosts_differ_does_not_wait() -> None:
    assert "has not started" not in explain(
        launched("preflight: torch differs: 2.3 on a; 2.1 on b")
    )


def test_a_launch_that_took_too_long_is_told_by_what_it_waited_for() -> None:
    message = (
        f"Pod[{pod_name('worker-0')}] failed (LaunchTimeout): the launch has not started within "
        f"launchTimeoutSeconds (900): waiting for {WORKER_1}: Connection refused"
    )
    conditions = [
        condition("Failed", "True", "Failed", "DeepSpeedJob digits has failed"),
        condition("ReplicaFailure", "True", "ErrorInPod", message),
    ]
    attempt = {"number": 1, "startTime": ago(990), "endTime": ago(10), "reason": "LaunchTimeout"}
    attempt["replica"] = pod_name("worker-0")
    obj = job("Failed", kind="DeepSpeedJob", conditions=conditions, attempts=[attempt])
    found = situation(obj)
    text = render(found, diagnosis.causes(found))
    assert "worker-0 failed (LaunchTimeout): its launch did not start in time: waiting for" in text
    assert "Connection refused" in text


def test_why_an_earlier_launch_was_given_up_is_none_of_the_words_of_the_next() -> None:
    """Which may be taken away before anything is told of it in the condition."""
    message = (
        f"Pod[{pod_name('worker-0')}] failed (LaunchTimeout): the launch has not started within "
        "launchTimeoutSeconds (900): deepspeed was started, but no rank has begun"
    )
    taken = {"number": 2, "startTime": ago(9), "endTime": ago(3), "reason": "NodeLost"}
    obj = job(
        "Pending",
        kind="DeepSpeedJob",
        conditions=[condition("ReplicaFailure", "True", "ErrorInPod", message)],
        attempts=[{**taken, "replica": pod_name("worker-0")}, {"number": 3, "startTime": ago(2)}],
    )
    found = situation(obj)
    text = render(found, diagnosis.causes(found))
    assert "worker-0 was taken away (NodeLost)" in text
    assert "no rank has begun" not in text


def test_what_can_never_start_is_told_as_such() -> None:
    words = f"trainyard: cannot start: {WORKER_1}: sshd not found: /usr/sbin/sshd"
    conditions = [
        condition("Failed", "True", "Failed", "DeepSpeedJob digits has failed"),
        condition(
            "ReplicaFailure",
            "True",
            "ErrorInPod",
            f"Pod[{WORKER_1}] exited with error code 127: {words}",
        ),
    ]
    attempt = {"number": 1, "startTime": ago(20), "endTime": ago(10), "reason": "Error"}
    attempt |= {"replica": WORKER_1, "exitCode": 127}
    obj = job("Failed", kind="DeepSpeedJob", conditions=conditions, attempts=[attempt])
    found = situation(obj)
    text = render(found, diagnosis.causes(found))
    assert "it can never start there: sshd not found: /usr/sbin/sshd" in text
    assert "another try would end the same way, so there is none" in text
