"""The page about one job."""

from __future__ import annotations

from typing import Any

from tests.unit.client.objects import (
    NOW,
    ago,
    condition,
    event,
    found,
    job,
    pod,
    pod_name,
    task,
    views,
)
from trainyard.cli.commands.show import describe, event_table


def page(**more: Any) -> str:
    replicas = task("Running", "Failed", restartCount=1)
    replicas["replicas"][1] |= {
        "containers": [{"name": "pytorch", "exitCode": 137, "reason": "OOMKilled"}]
    }
    full = job(
        "Running",
        spec={
            "runPolicy": {"backoffLimit": 5, "activeDeadlineSeconds": 3600},
            "elastic": {"enabled": True, "expectedReplicas": 2, "maxReplicas": 4},
        },
        startTime=ago(50),
        aggregate={"running": 1, "failed": 1},
        backoffCount=1,
        conditions=[condition("Running", "True", "-", "All pods are\nrunning")],
        tasks=[replicas],
        attempts=[
            {
                "number": 1,
                "startTime": ago(50),
                "endTime": ago(20),
                "replica": pod_name("worker-1"),
                "exitCode": 137,
                "reason": "OOMKilled",
            },
            {"number": 2, "startTime": ago(20)},
        ],
        tensorboard={
            "note": "TensorBoard [digits-1] is ready",
            "ready": True,
            "type": "Normal",
            "url": "http://127.0.0.1:31234",
        },
        **more,
    )
    pods = views(pod("worker-0", "Running", node="here"))
    events = [event(pod_name("worker-1"), "Restart", "exited\nrestarting")]
    return describe(found(full), pods, events, NOW, logs="/state/pods/x")


def section(text: str, title: str) -> list[str]:
    """The lines of one part of the page."""
    after = text[text.index(f"{title}:\n") :].splitlines()[1:]
    return after[: after.index("")] if "" in after else after


def test_the_facts_come_first() -> None:
    facts = dict(line.split(":", 1) for line in page().split("\n\n")[0].splitlines())
    stripped = {key: value.strip() for key, value in facts.items()}
    assert stripped["Phase"] == "Running"
    assert stripped["Running"] == "1/2"
    assert stripped["Restarts"] == "1 of 5"
    assert stripped["Elastic"] == "2 replicas expected, 1 to 4 allowed"
    assert stripped["Deadline"] == "3600 s from the start"
    assert stripped["TensorBoard"] == "http://127.0.0.1:31234"
    assert stripped["Logs"] == "/state/pods/x"
    assert stripped["Duration"] == "50s"
    assert "Ended" not in stripped


def test_a_replica_is_a_line_with_exit_and_pod() -> None:
    _, first, second = section(page(), "Replicas")
    assert first.split() == [
        "worker-0",
        "Running",
        "-",
        "-",
        "here",
        "-",
        "30s",
        pod_name("worker-0"),
    ]
    assert second.split()[:4] == ["worker-1", "Failed", "137", "OOMKilled"]


def test_the_history_of_attempts_says_who_ended_them() -> None:
    _, first, second = section(page(), "Attempts")
    assert first.split()[0] == "1"
    assert first.split()[3:] == ["30s", "worker-1", "137", "OOMKilled"]
    assert second.endswith("(under way)")


def test_an_attempt_that_waits_for_its_start_is_not_under_way() -> None:
    waits = job("Pending", attempts=[{"number": 2, "startTime": ago(-9)}])
    assert "(not yet)" in describe(found(waits), [], [], NOW)


def test_an_attempt_of_a_job_that_has_ended_is_not_under_way() -> None:
    over = job("Failed", completionTime=ago(10), attempts=[{"number": 1, "startTime": ago(50)}])
    assert section(describe(found(over), [], [], NOW), "Attempts")[1].split()[3] == "40s"


def test_conditions_and_events_are_one_line_each() -> None:
    assert section(page(), "Conditions")[1].split()[:4] == ["Running", "True", "-", "5s"]
    assert section(page(), "Events")[1].endswith("worker-1   exited ⏎ restarting")


def test_the_ages_of_events_fall_as_the_list_goes_on() -> None:
    """Some sources tell whole seconds and some fractions: the list goes by whole seconds."""
    first, second = event("a", "First", "x"), event("b", "Second", "y")
    first["lastTimestamp"] = "2026-08-02T11:59:50.900000Z"
    second["lastTimestamp"] = "2026-08-02T11:59:50Z"
    lines = event_table(found(job()), [first, second], NOW).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["10s", "10s"]


def test_an_event_that_happened_again_is_counted() -> None:
    again = event("digits", "Restart", "x") | {"count": 4}
    assert "5s (x4)" in event_table(found(job()), [again], NOW)


def test_a_job_without_status_shows_what_there_is() -> None:
    text = describe(found(job()), [], [], NOW)
    assert "Pending" in text
    assert "Replicas" not in text


def test_the_mode_is_shown_where_it_is_not_the_usual_one() -> None:
    for mode in ("pause", "debug"):
        text = describe(found(job(spec={"runMode": {mode: {"enabled": True}}})), [], [], NOW)
        assert f"Mode:         {mode}" in text
    assert "Mode" not in page()


def test_containers_before_and_beside_the_training_do_not_stand_for_it() -> None:
    """Decision 108: but for an init container that failed."""
    replicas = task("Running", "Failed", "Failed")
    own = {"name": "pytorch", "state": "Running"}
    init = {"name": "prepare", "role": "Init", "exitCode": 0, "reason": "Completed"}
    side = {"name": "proxy", "role": "Sidecar", "exitCode": 143, "reason": "Error"}
    replicas["replicas"][0]["containers"] = [init, side, own]
    replicas["replicas"][1]["containers"] = [init | {"exitCode": 3, "reason": "OOMKilled"}, side]
    replicas["replicas"][2]["containers"] = [init, side, own | {"exitCode": 1, "reason": "Error"}]
    text = describe(found(job("Running", tasks=[replicas])), [], [], NOW)
    rows = [line.split()[:4] for line in text.splitlines() if line.lstrip().startswith("worker-")]
    assert rows == [
        ["worker-0", "Running", "-", "-"],
        ["worker-1", "Failed", "3", "OOMKilled"],
        ["worker-2", "Failed", "1", "Error"],
    ]
