"""A launch over ssh that does not start is told, and has a limit from when all replicas run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import pytest

from tests.unit.lifecycle.world import START, World, colossalai, deepspeed, generic, pytorch
from trainyard.lifecycle import Observed, texts
from trainyard.schema.times import render

REFUSED = "waiting for train-worker-2: Connection refused"
CANNOT = "trainyard: cannot start: train-worker-1: sshd not found: /usr/sbin/sshd"


class Launching(World):
    """Its launching container has a startup probe, which says what the launch waits for."""

    words = ""

    def observed(self) -> Observed:
        found = super().observed()
        return replace(
            found, probe_output={pod.uid: self.words for pod in found.pods if self.words}
        )

    def started(self, replica: str, value: bool) -> Self:
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
    assert world.messages("LaunchWaits") == []


def test_what_a_slow_launch_waits_for_is_a_condition_and_one_event() -> None:
    world = launching(deepspeed())
    world.words = REFUSED
    world.advance(16).settle().advance(15).settle()
    message = f"The launch has not started: {REFUSED}."
    assert world.condition("Launched") == ("False", "LaunchWaits", message)
    assert world.messages("LaunchWaits") == [message]
    assert world.phase == "Running"


def test_a_launch_without_words_is_told_of_all_the_same() -> None:
    world = launching(deepspeed()).advance(16).settle()
    assert world.condition("Launched") == (
        "False",
        "LaunchWaits",
        "The launch has not started: its pod does not say why.",
    )


DIFFER = "torch differs: 2.3 on worker-0; 2.1 on worker-1"


@pytest.mark.parametrize("job", [deepspeed(), colossalai()], ids=["deepspeed", "colossalai"])
def test_hosts_that_differ_are_told_by_the_condition_of_the_launch(job: dict[str, Any]) -> None:
    leader = "launcher" if job["kind"] == "ColossalAIJob" else "0"
    world = launching(job, leader)
    world.words = f"preflight: {DIFFER}"
    world.started(leader, True).advance(1).settle()
    text = f"The launch has started, but its hosts differ: {DIFFER}."
    assert world.condition("Launched") == ("True", "HostsDiffer", text)
    world.words = ""  # as for a controller that was started since
    world.advance(60).settle()
    assert world.condition("Launched") == ("True", "HostsDiffer", text)
    assert world.messages("HostsDiffer") == [text]
    assert world.last.status is None


def test_a_launch_that_has_only_to_tell_how_its_hosts_differ_has_started() -> None:
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 60}))
    world.words = f"preflight: {DIFFER}"
    world.advance(600).settle()
    assert world.condition("Launched")[:2] == ("True", "HostsDiffer")  # type: ignore[index]
    assert (world.phase, world.backoff) == ("Running", 0)


def test_the_next_launch_is_judged_by_its_own_hosts() -> None:
    world = launching(deepspeed(run_policy={"backoffLimit": 1}))
    world.words = f"preflight: {DIFFER}"
    world.started("0", True).settle()
    world.words = ""
    world.exit("0", 1).settle().advance(60).settle()
    text = "The launch starts once all replicas run."
    assert world.condition("Launched") == ("False", "-", text)
    world.run().settle().started("0", True)  # type: ignore[attr-defined]
    world.settle()
    assert world.condition("Launched") == ("True", "-", texts.LAUNCHED)


MISSING = "missing are train.py on worker-1"
UNREADY = f"trainyard: train-worker-0: the preflight failed with exit code 2: {MISSING}"


@pytest.mark.parametrize("limit", [0, 1])
def test_what_hosts_lack_is_told_by_the_condition_of_the_launch(limit: int) -> None:
    world = launching(deepspeed(run_policy={"backoffLimit": limit}))
    world.exit("0", 2, message=f"first line\n{UNREADY}").settle()
    text = f"The launch has not started: its preflight failed; {MISSING}."
    assert world.condition("Launched") == ("False", "PreflightFailed", text)
    assert (world.phase == "Failed") is (limit == 0)
    if limit:
        world.advance(60).settle().run().settle()
        assert world.condition("Launched") == ("False", "PreflightFailed", text)
        world.started("0", True).settle()
        assert world.condition("Launched") == ("True", "-", texts.LAUNCHED)


ABSENT = "missing are train.py on worker-0, worker-1"
NOWHERE = f"trainyard: cannot start: train-x: the preflight failed with exit code 2: {ABSENT}"
RUNC = 'failed to create containerd task: runc: exec: "trian": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (2, "Error", NOWHERE),
        (127, "ContainerCannotRun", "command not found: trian in PATH=/bin"),
        (126, "ContainerCannotRun", "cannot run python: user 1000 may not enter /root"),
        (128, "ContainerCannotRun", "cannot enter working directory /w: No such file or directory"),
        (128, "StartError", RUNC),
    ],
    ids=["nowhere", "not-found", "no-entry", "no-folder", "runc"],
)
@pytest.mark.parametrize(
    ("job", "replica"),
    [
        (deepspeed(), "0"),
        (colossalai(limit=3), "launcher"),
        (pytorch(workers=2), "0"),
        (generic(policy="Always", limit=3), "0"),
    ],
    ids=["deepspeed", "colossalai", "pytorch", "generic"],
)
def test_what_can_never_start_costs_no_restart(
    job: dict[str, Any], replica: str, code: int, reason: str, message: str
) -> None:
    world = World(job).running()
    world.exit(replica, code, reason=reason, message=message).settle().advance(60).settle()
    assert world.phase == "Failed"
    assert world.messages("Restart") == []
    if message == NOWHERE and job["kind"] in ("DeepSpeedJob", "ColossalAIJob"):
        text = f"The launch has not started: its preflight failed; {ABSENT}."
        assert world.condition("Launched") == ("False", "PreflightFailed", text)


@pytest.mark.parametrize(
    "message",
    ["cannot run python: Resource temporarily unavailable", "runc: context deadline exceeded"],
)
def test_what_may_start_at_another_try_is_tried_again(message: str) -> None:
    world = World(pytorch(workers=1)).running()
    world.exit("0", 126, reason="StartError", message=message).settle().advance(60).settle()
    assert world.phase != "Failed"
    assert len(world.messages("Restart")) == 1


def test_a_failure_of_the_training_says_nothing_of_its_launch() -> None:
    world = launching(deepspeed(run_policy={"backoffLimit": 0}))
    world.started("0", True).settle()
    world.exit("0", 2, message="train.py: error: missing are arguments").settle()
    assert world.condition("Launched") == ("True", "-", texts.LAUNCHED)


def test_a_launch_that_takes_too_long_is_a_failure_of_who_launches() -> None:
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 60, "backoffLimit": 1}))
    world.words = REFUSED
    world.advance(59).settle()
    assert world.backoff == 0
    world.advance(1).settle()
    assert world.backoff == 1
    (restart,) = world.messages("Restart")
    limit = "the launch has not started within launchTimeoutSeconds (60)"
    assert f"(LaunchTimeout): {limit}: {REFUSED}" in restart
    assert world.condition("Launched") == (
        "False",
        "-",
        texts.TO_BE_LAUNCHED,
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


def test_when_a_launch_is_looked_at_again() -> None:
    """As it is worth a word, every while after that, and when it has taken too long."""
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 40}))
    assert world.last.wake_at == START + timedelta(seconds=15)
    world.advance(14).settle()
    assert world.condition("Launched") is None
    assert world.last.wake_at == START + timedelta(seconds=15)
    world.advance(1).settle()
    assert world.condition("Launched")[1] == "LaunchWaits"  # type: ignore[index]
    assert world.last.wake_at == START + timedelta(seconds=30)
    world.advance(15).settle()
    assert world.last.wake_at == START + timedelta(seconds=40)


def test_a_launch_whose_kubelet_tells_no_times_begins_now() -> None:
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 40}))
    for pod in world.pods.values():
        for container in pod["status"]["containerStatuses"]:
            container["state"] = {"running": {}}
    world.advance(600).step()
    assert (world.phase, world.backoff) == ("Running", 0)
    assert world.last.wake_at == world.now + timedelta(seconds=15)


def test_a_launcher_that_has_ended_launches_no_more() -> None:
    world = launching(deepspeed(run_policy={"launchTimeoutSeconds": 40, "backoffLimit": 1}))
    world.words = f"preflight: {DIFFER}"
    world.exit("0", 1).settle()
    assert world.condition("Launched") is None
    assert world.messages("HostsDiffer") == []
