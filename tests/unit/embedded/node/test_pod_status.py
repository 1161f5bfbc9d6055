"""The pod's status, from what its containers have been through."""

from __future__ import annotations

import pytest

from trainyard.embedded.node.pods.pod_status import (
    ContainerRun,
    PodStatusFields,
    conditions,
    pod_phase,
    pod_status,
    with_stopped_condition,
)
from trainyard.schema.times import from_nanoseconds


def run(phase: str, code: int = 0, *, init: bool = False, **spec: object) -> ContainerRun:
    return ContainerRun(
        {"name": "c", **spec}, is_init=init, phase=phase, exit_code=code, finished_at=10**18
    )


@pytest.mark.parametrize(
    ("runs", "policy", "phase"),
    [
        ([run("waiting")], "Never", "Pending"),
        ([run("starting")], "Never", "Pending"),
        ([run("running")], "Never", "Running"),
        ([run("terminated")], "Never", "Succeeded"),
        ([run("terminated", 1)], "Never", "Failed"),
        ([run("terminated", 1)], "OnFailure", "Running"),
        ([run("terminated")], "OnFailure", "Succeeded"),
        ([run("terminated")], "Always", "Running"),
        ([run("terminated"), run("running")], "Never", "Running"),
        ([run("terminated"), run("terminated", 2)], "Never", "Failed"),
        ([run("running", init=True), run("waiting")], "Never", "Pending"),
        ([run("terminated", 1, init=True), run("waiting")], "Never", "Failed"),
        ([run("terminated", 1, init=True), run("waiting")], "OnFailure", "Pending"),
        (
            [run("running", init=True, restartPolicy="Always"), run("terminated")],
            "Never",
            "Succeeded",
        ),
    ],
)
def test_phase(runs: list[ContainerRun], policy: str, phase: str) -> None:
    assert pod_phase(runs, policy) == phase


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    ready = run("running")
    first = conditions([ready], "Running", 1, [])
    ready.is_ready = True
    second = conditions([ready], "Running", 10**9, first)
    changed = {c["type"] for c in second if c["lastTransitionTime"] == from_nanoseconds(10**9)}
    assert changed == {"Ready", "ContainersReady"}


def test_conditions_of_others_are_kept() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "x"}
    assert scheduled in conditions([run("running")], "Running", 1, [scheduled])


def test_stopped_processes_are_a_condition_only_where_there_are_or_were_some() -> None:
    assert with_stopped_condition([], (), 1) == []
    [told] = first = with_stopped_condition([], (12, 7), 10**9)
    assert (told["status"], told["message"]) == ("True", "stopped by a signal: 7, 12")
    assert with_stopped_condition(first, (7, 12), 5 * 10**9) == first
    # Nobody was stopped for longer than it says.
    [more] = second = with_stopped_condition(first, (7, 12, 13), 6 * 10**9)
    assert more["lastTransitionTime"] == from_nanoseconds(6 * 10**9)
    [over] = third = with_stopped_condition(second, (), 7 * 10**9)
    assert (over["status"], over.get("message")) == ("False", None)
    assert with_stopped_condition(third, (), 8 * 10**9) == third


@pytest.mark.parametrize("code", [0, 1])
def test_a_pod_whose_sidecar_has_ended_with_an_error_was_initialized(code: int) -> None:
    runs = [run("terminated", 143, init=True, restartPolicy="Always"), run("terminated", code)]
    held = conditions(runs, "Failed" if code else "Succeeded", 1, [])
    assert {c["type"]: c["status"] for c in held}["Initialized"] == "True"


def test_a_terminal_phase_stays_whoever_wrote_it() -> None:
    old = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    fields = PodStatusFields(
        "Running", "DeadlineExceeded", "", "10.0.0.2", "127.0.0.1", start_time=5
    )
    found = pod_status([run("running")], fields, old=old, now=1)
    assert old == {key: found[key] for key in old}
    ready = [c["status"] for c in found["conditions"] if c["type"] == "Ready"]
    assert ready == ["False"]


def test_a_status_that_is_computed_again_is_the_same() -> None:
    runs = [run("terminated", 3)]
    fields = PodStatusFields("Failed", "", "", "10.0.0.2", "127.0.0.1", start_time=5)
    first = pod_status(runs, fields, old={}, now=1)
    assert pod_status(runs, fields, old=first, now=2 * 10**9) == first
    ended = first["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
