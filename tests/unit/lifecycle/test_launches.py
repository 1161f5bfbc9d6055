"""A launch over ssh that does not start is told, and has a limit from when all replicas run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lifecycle.world import World, colossalai, deepspeed
from trainyard.lifecycle import Observed
from trainyard.schema.times import render

REFUSED = "waiting for train-worker-2: Connection refused"
CANNOT = "trainyard: cannot start: train-worker-1: sshd not found: /usr/sbin/sshd"


class Launching(World):
    """Its launching container has a startup probe, which says what the launch waits for."""

    words = ""

    def observed(self) -> Observed:
        found = super().observed()
        return replace(found, words={pod.uid: self.words for pod in found.pods if self.words})

    def started(self, replica: str, value: bool) -> Launching:
        pod = self.pods[self.name(replica)]
        for container in pod["status"]["containerStatuses"]:
            container |= {"started": value, "state": {"running": {"startedAt": render(self.now)}}}
        return self


def launching(job: dict[str, Any], leader: str = "0") -> Launching:
    """All replicas run, and the launch waits."""
    world = Launching(job)
    world.running()
    world.started(leader, False).settle()
    return world


def test_a_launch_that_is_quick_is_not_told_of_before_it_has_started() -> None:
    world = launching(deepspeed())
    assert world.condition("Launched") is None
    assert world.last.wake_at is not None
    world.advance(3).started("0", True).settle()
    assert world.condition("Launched") == ("True", "-", "The launch has started.")
    assert world.told("LaunchWaits") == []


def test_what_a_slow_launch_waits_for_is_a_condition_and_one_event() -> None:
    world = launching(deepspeed())
    world.words = REFUSED
    world.advance(16).settle().advance(15).settle()
    told = f"The launch has not started: {REFUSED}."
    assert world.condition("Launched") == ("False", "LaunchWaits", told)
    assert world.told("LaunchWaits") == [told]
    assert world.phase == "Running"


def test_a_launch_without_words_is_told_of_all_the_same() -> None:
    world = launching(deepspeed()).advance(16).settle()
    assert world.condition("Launched") == (
        "False",
        "LaunchWaits",
        "The launch has not started: its pod does not say why.",
    )


def test_a_launch_that_takes_too_long_is_a_failure_of_who_launches() -> None:
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 60, "backoffLimit": 1}))
    world.words = REFUSED
    world.advance(59).settle()
    assert world.backoff == 0
    world.advance(1).settle()
    assert world.backoff == 1
    (restart,) = world.told("Restart")
    limit = "the launch has not started within launchTimeoutSeconds (60)"
    assert f"(LaunchTimeout): {limit}: {REFUSED}" in restart
    assert world.condition("Launched") == (
        "False",
        "-",
        "The launch starts once all replicas run.",
    )


@pytest.mark.parametrize("policy", ["Never", "ExitCode"])
def test_a_launch_that_takes_too_long_follows_the_restart_policy(policy: str) -> None:
    world = launching(deepspeed(policy=policy))
    world.words = REFUSED
    world.advance(600).settle().advance(5).settle()
    assert world.phase == "Failed"
    failure = world.condition("ReplicaFailure")
    assert failure is not None
    assert REFUSED in failure[2]
    assert world.condition("Failed") == (
        "True",
        "Failed",
        f"DeepSpeedJob train has failed: {world.name('0')} failed (LaunchTimeout)",
    )


def test_the_clock_starts_when_all_replicas_run() -> None:
    """One that waits for a place, or its image, is nothing that a launch could give up on."""
    world = Launching(deepspeed(run_policy={"launchTimeoutSeconds": 60}))
    world.settle().run("0", "1").settle()
    world.started("0", False).settle()
    world.advance(3600).settle()
    assert world.backoff == 0
    assert world.condition("Launched") is None
    world.run().started("2", True).settle()
    world.advance(59).settle()
    assert world.backoff == 0
    world.advance(1).settle()
    assert world.backoff == 1


def test_the_launcher_of_colossalai_has_the_limit_too() -> None:
    job = colossalai(policy="Never", runPolicy={"launchTimeoutSeconds": 30})
    world = launching(job, "launcher").advance(30).settle()
    assert world.phase == "Failed"


def test_a_probe_of_the_users_own_is_left_alone() -> None:
    job = deepspeed()
    container = job["spec"]["worker"]["template"]["spec"]["containers"][0]
    container["startupProbe"] = {"exec": {"command": ["true"]}}
    world = launching(job).advance(3600).settle()
    assert world.condition("Launched") is None
    pod = world.pods[world.name("0")]
    assert pod["spec"]["containers"][0]["startupProbe"] == container["startupProbe"]


def test_what_can_never_start_is_not_tried_again() -> None:
    world = Launching(deepspeed(policy="OnFailure")).running().exit("1", 127, message=CANNOT)
    world.settle()
    assert world.phase == "Failed"
    assert world.backoff == 0
    failed = world.condition("Failed")
    assert failed is not None
    assert failed[1] == "Failed"


def test_another_failure_of_the_same_code_is_tried_again() -> None:
    world = Launching(deepspeed(policy="OnFailure")).running().exit("1", 127, message="sh: x")
    assert world.settle().backoff == 1


def test_a_pause_takes_back_that_the_launch_has_started() -> None:
    world = launching(deepspeed())
    world.started("0", True).settle()
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    launched = world.condition("Launched")
    assert launched is not None
    assert launched[0] == "False"
