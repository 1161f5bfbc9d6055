"""Pods that are held after their command ended: as they are seen, and what holders hear."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.lifecycle.test_in_place import InPlaceWorld
from trainyard.lifecycle import Observed, Pod
from trainyard.lifecycle.in_place.in_place_pods import with_reported_ends
from trainyard.lifecycle.in_place.in_place_restart import instruction_for_pod
from trainyard.lifecycle.pod_reports import InPlaceReport

SIDECAR = {"name": "logger", "state": {"running": {"startedAt": "2026-01-01T12:00:00Z"}}}


@pytest.fixture
def world() -> InPlaceWorld:
    made = InPlaceWorld()
    made.running()
    return made


def pod_of(world: InPlaceWorld) -> Pod:
    return Pod.decode(world.pods[world.name("0")])


def looked(
    world: InPlaceWorld, hold: InPlaceReport | None, entry: dict[str, Any] | None = None
) -> Pod:
    """The pod as it is seen where this was told of it."""
    pod = pod_of(world)
    reports = replace(world.reports, in_place={} if hold is None else {pod.name: hold})
    entries = {} if entry is None else {pod.name: entry}
    [found] = with_reported_ends(
        world.workload, Observed(pods=(pod,), reports=reports), entries
    ).pods
    return found


def ended(world: InPlaceWorld, **more: Any) -> InPlaceReport:
    pod, at = pod_of(world), world.now - timedelta(seconds=3)
    message = {"ended": True, "code": 7, "at": at, "message": "boom", **more}
    return InPlaceReport(
        **{"uid": pod.uid, "attempt": pod.attempt, "received_at": world.now, **message}
    )


def test_a_command_that_ended_is_seen_as_its_container_s_end(world: InPlaceWorld) -> None:
    hold = ended(world)
    found = looked(world, hold)
    [main] = found.containers
    assert (found.phase, found.awaits_in_place_restart) == ("Failed", True)
    assert (main.state, main.exit_code, main.reason) == ("Terminated", 7, "Error")
    assert (main.message, main.ended) == ("boom", hold.at)
    assert (main.ready, main.since) == (False, None)
    container = {"name": "main", "state": "Terminated", "exitCode": 7, "reason": "Error"}
    assert found.container_statuses == [container]


def test_a_sidecar_goes_on_and_so_does_the_pod(world: InPlaceWorld) -> None:
    world.pods[world.name("0")]["status"]["containerStatuses"].append(SIDECAR)
    found = looked(world, ended(world))
    assert (found.phase, found.awaits_in_place_restart) == ("Running", True)
    assert [each.state for each in found.containers] == ["Terminated", "Running"]


@pytest.mark.parametrize(
    "other", [{"ended": False}, {"code": 0}, {"uid": "another"}, {"attempt": 9}], ids=str
)
def test_what_says_of_no_failure_here_changes_nothing(world: InPlaceWorld, other: Any) -> None:
    assert looked(world, ended(world, **other)) == pod_of(world)


def test_a_pod_that_does_not_run_is_seen_as_it_is(world: InPlaceWorld) -> None:
    world.pods[world.name("0")]["status"]["phase"] = "Succeeded"
    assert looked(world, ended(world)) == pod_of(world)


def test_status_remembers_what_nobody_has_told_yet(world: InPlaceWorld) -> None:
    uid, containers = pod_of(world).uid, [{"name": "main", "exitCode": 7}]
    failed = {"uid": uid, "phase": "Failed", "containers": containers}
    found = looked(world, None, failed)
    assert (found.phase, found.containers[0].exit_code) == ("Failed", 7)
    for other in (
        {"uid": "another"},
        {"phase": "Running"},
        {"containers": []},
        {"containers": [{"name": "logger", "exitCode": 7}]},
    ):
        assert looked(world, None, {**failed, **other}) == pod_of(world)
    # What was told since goes before it.
    assert looked(world, ended(world, ended=False, code=0), failed) == pod_of(world)


def test_a_holder_hears_which_attempt_is_wanted(world: InPlaceWorld) -> None:
    pod = pod_of(world)
    for status, wanted in (
        ({}, 1),
        ({"internal": {"floor": 5}}, 5),
        ({"internal": {"floor": 5, "replicas": {pod.name: {"attempt": 7}}}}, 7),
        ({"internal": {"floor": 5, "replicas": {"another": {"attempt": 7}}}}, 5),
        ({"internal": {"replicas": {pod.name: {"restarts": 1}}}}, 1),
    ):
        assert instruction_for_pod(status, pod) == {"wanted": wanted, "start": pod.attempt}
