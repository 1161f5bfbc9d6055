"""Restarts in place: the same pods, the same account as with new ones (decisions 283 and 284)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.tools import soak
from tests.unit.lifecycle.test_hang_detector import rank
from tests.unit.lifecycle.world import SETTINGS, World, pytorch
from trainyard.kinds.pytorch.rules import check
from trainyard.kinds.pytorch.spec import PyTorchTrainingJob
from trainyard.kinds.shared import labels
from trainyard.lifecycle import Pod
from trainyard.lifecycle.in_place.in_place_restart import ANSWER_LIMIT, instruction_for_pod
from trainyard.lifecycle.pod_reports import InPlaceReport
from trainyard.schema.problems import Severity
from trainyard.schema.times import parse, render

CHANNEL = replace(SETTINGS, channel_address="channel.test:7443")
WORKERS = 4
SEEDS = soak(12, 400)


class InPlaceWorld(World):
    """A world whose pods are held, or not, by the job's restart mode."""

    def __init__(self, mode: str = "InPlace", **policy: Any) -> None:
        run_policy = {"backoffLimit": 3, **policy, "restartMode": mode}
        super().__init__(pytorch(workers=WORKERS, run_policy=run_policy), CHANNEL)
        self.is_in_place = mode == "InPlace"
        self.in_place: dict[str, InPlaceReport] = {}
        self.silent: set[str] = set()

    def fail(self, replica: str, code: int = 1) -> None:
        """A command ends with that code."""
        if not self.is_in_place:
            self.exit(replica, code)
            return
        pod = self.pods[self.name(replica)]
        meta = pod["metadata"]
        attempt = int(meta["annotations"][labels.ATTEMPT])
        hold = InPlaceReport(meta["uid"], attempt, self.now, True, code, self.now, since=self.now)
        self.in_place[self.name(replica)] = hold

    def report_all(self) -> None:
        """Holders do what they are told, and say how they are."""
        for name, obj in self.pods.items():
            pod = Pod.decode(obj)
            if not self.is_in_place or pod.phase != "Running" or name in self.silent:
                continue
            report, instruction = (
                self.in_place.get(name),
                instruction_for_pod(self.status or {}, pod),
            )
            if report is None or report.uid != pod.uid:
                report = InPlaceReport(pod.uid, pod.attempt, self.now)
            if instruction["start"] > report.attempt:
                assert report.ended, "an attempt starts while another runs"
                assert instruction["start"] == instruction["wanted"]
                report = InPlaceReport(pod.uid, instruction["start"], self.now)
            elif instruction["wanted"] > report.attempt and not report.ended:
                report = InPlaceReport(
                    pod.uid, report.attempt, self.now, ended=True, code=143, at=self.now
                )
            self.in_place[name] = replace(report, received_at=self.now)
        self.reports = replace(self.reports, in_place=dict(self.in_place))

    def forget(self) -> None:
        """Another controller leads, which has heard nothing yet."""
        self.reports = replace(self.reports, in_place={})

    def play(self, seconds: float = 0.0) -> None:
        """Time passes, in which pods start and all is done that is due."""
        self.advance(seconds)
        for _ in range(3):
            self.report_all()
            self.settle().run().settle()

    @property
    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods.values()}

    def account(self) -> dict[str, Any]:
        """What people are told of restarts, without times to the second."""
        status = self.status or {}
        return {
            "phase": status["phase"],
            "backoffCount": status["backoffCount"],
            "restarts": [task["restartCount"] for task in status["tasks"]],
            "attempts": [
                {key: each.get(key) for key in ("number", "reason", "replica", "exitCode")}
                for each in status["attempts"]
            ],
            "told": [e.message for e in self.events if e.reason in ("Restart", "ReplicaFailure")],
        }


def running(mode: str = "InPlace", **policy: Any) -> InPlaceWorld:
    world = InPlaceWorld(mode, **policy)
    world.running()
    world.report_all()
    return world


@pytest.mark.parametrize("comes", [True, False])
def test_who_takes_over_waits_a_moment_for_the_first_that_failed(comes: bool) -> None:
    """What failed while there was no controller is heard in any order."""
    world = running()
    world.fail("2", 137)
    world.advance(0.1)
    world.fail("0", 1)
    world.advance(5)
    all_reports = {name: replace(hold, since=world.now) for name, hold in world.in_place.items()}
    first = world.name("0")
    world.reports = replace(world.reports, in_place={first: all_reports[first]})
    world.settle()
    assert world.account()["backoffCount"] == 0, "it decides by what it heard first"
    assert world.last is not None
    assert world.last.wake_at == world.now + timedelta(seconds=1)
    if comes:
        world.reports = replace(world.reports, in_place=all_reports)
    else:
        world.advance(1)
    world.settle()
    cause = world.account()["attempts"][0]
    assert (cause["replica"], cause["exitCode"]) == (
        (world.name("2"), 137) if comes else (world.name("0"), 1)
    )


@pytest.mark.parametrize("comes", [True, False])
def test_who_takes_over_waits_a_moment_for_the_last_words_of_an_end_that_is_told(
    comes: bool,
) -> None:
    """Status tells the exit code; what is the same cause again goes by the words."""
    world = running(restartJudge=True)
    world.fail("2", 1)
    name, words = world.name("2"), "RuntimeError: Connection closed by peer"
    world.in_place[name] = replace(world.in_place[name], message=words)
    world.report_all()
    world.step()
    assert world.account()["backoffCount"] == 0, "others may have failed before"
    in_place = world.reports.in_place
    world.forget()
    world.since = world.now
    world.settle()
    assert world.account()["backoffCount"] == 0, "it decides by what status tells"
    assert world.status is not None
    container = world.status["tasks"][0]["replicas"][2]["containers"][0]
    assert (container["state"], container["exitCode"]) == ("Terminated", 1)
    if comes:
        world.reports = replace(world.reports, in_place=in_place)
    world.advance(1).settle().advance(1).settle()
    assert world.account()["attempts"][0]["exitCode"] == 1
    assert any(words in text for text in world.account()["told"]) == comes


def test_what_a_rule_says_of_a_pod_taken_away_is_kept_while_others_are_not_heard() -> None:
    rules = [{"action": "FailJob", "onReasons": ["DeletionByTaintManager"]}]
    world = running(podFailurePolicy={"rules": rules})
    world.fail("1", 1)
    world.report_all()
    taken, told = world.name("2"), world.name("1")
    world.pods[taken]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    ]
    world.take(taken)
    world.reports = replace(world.reports, in_place={told: world.reports.in_place[told]})
    world.settle()
    assert world.phase == "Running", "the others are not heard yet"
    world.advance(1).settle()
    assert world.phase == "Failed"
    assert "was taken away (DeletionByTaintManager)" in world.condition("ReplicaFailure")[2]  # type: ignore[index]


def test_a_pod_taken_away_beside_a_failure_that_waits_for_its_cause_waits_too() -> None:
    world = running()
    world.fail("3", 1)
    world.report_all()
    world.remove("1")
    failed = world.name("3")
    world.reports = replace(world.reports, in_place={failed: world.reports.in_place[failed]})
    before = len(world.messages("NewReplica"))
    world.settle()
    assert world.name("1") not in world.pods, "the others are not heard yet"
    assert len(world.messages("NewReplica")) == before
    world.advance(1).settle()
    world.play(SETTINGS.backoff_base_seconds)
    assert world.phase == "Running"
    assert {world.attempt_of(str(i)) for i in range(WORKERS)} == {"2"}
    assert world.account()["backoffCount"] == 0, "what was taken away came first"


def test_a_failed_rank_restarts_all_in_the_pods_that_are_there() -> None:
    world = running()
    before = world.uids
    world.fail("2", 3)
    world.play()
    assert world.phase == "Pending"
    assert {each["metadata"]["annotations"][labels.ATTEMPT] for each in world.pods.values()} == {
        "1"
    }, "nothing starts before its time"
    world.play(SETTINGS.backoff_base_seconds)
    assert world.phase == "Running"
    assert world.uids == before
    assert {world.attempt_of(str(i)) for i in range(WORKERS)} == {"2"}
    assert all(not each.ended and each.attempt == 2 for each in world.in_place.values())
    assert world.status is not None
    assert "inPlaceUntil" not in world.status["internal"]
    (start,) = [text for text in world.messages("NewReplica") if "again" in text]
    assert start.startswith("Start 4 replicas again in their pods: ")


def test_a_new_controller_goes_on_where_the_old_one_was() -> None:
    """Both are in the API server: the attempt wanted in the status, the start in annotations."""
    world = running()
    before = world.uids
    world.fail("0")
    world.report_all()
    world.step()
    world.forget()
    world.settle()
    assert world.uids == before
    world.advance(SETTINGS.backoff_base_seconds).settle()
    assert world.attempt_of("0") == "1", "nobody has said that it has ended"
    world.play()
    assert (world.uids, world.attempt_of("0"), world.backoff) == (before, "2", 1)


def test_a_pod_that_does_not_answer_in_time_has_all_get_new_ones() -> None:
    world = running()
    before = world.uids
    world.silent.add(world.name("3"))
    world.fail("1")
    world.play(SETTINGS.backoff_base_seconds)
    assert world.uids == before
    world.play(30 + ANSWER_LIMIT.total_seconds())
    assert not world.uids & before
    assert world.backoff == 1
    assert world.messages("Restart")[-1] == (
        f"The replicas get new pods: {world.name('3')} did not answer in time."
    )


def test_a_pod_that_ends_meanwhile_has_all_get_new_ones_at_once() -> None:
    world = running()
    before = world.uids
    world.fail("1")
    world.report_all()
    world.step()
    world.exit("2", 137)
    world.play(SETTINGS.backoff_base_seconds)
    assert not world.uids & before
    assert (world.backoff, world.phase) == (1, "Running")


def test_a_pod_that_was_deleted_is_not_restarted_in_place() -> None:
    world = running()
    world.remove("1")
    world.play()
    assert world.status is not None
    assert "inPlaceUntil" not in world.status["internal"]
    assert world.backoff == 0
    assert world.attempt_of("0") == "2"


def test_a_budget_that_is_spent_ends_the_job_by_the_code_that_was_told() -> None:
    world = running(backoffLimit=0)
    world.fail("1", 7)
    world.play()
    assert world.phase == "Failed"
    failure = world.condition("ReplicaFailure")
    assert failure is not None
    assert "exited with error code 7" in failure[2]


def test_without_a_channel_there_is_nobody_to_hear_and_pods_run_their_commands() -> None:
    job = pytorch(run_policy={"restartMode": "InPlace"})
    world = World(job).running()
    pod = next(iter(world.pods.values()))
    assert pod["spec"]["containers"][0]["command"] == ["x"]


def test_a_pod_is_told_its_own_uid_and_its_command_is_kept() -> None:
    world = running()
    container = next(iter(world.pods.values()))["spec"]["containers"][0]
    assert container["command"][-1] == "x"
    assert container["args"] == ["train.py"]
    env = {each["name"]: each for each in container["env"]}
    assert env["TRAINYARD_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    assert env["TRAINYARD_HOLD"]["value"].startswith("attempt=1,grace=30,every=0.25,files=")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"elastic": {"enabled": True}, "torchrunConfig": {"enabled": True}}, "elastic job"),
        ({"runPolicy": {"restartScope": "Replica"}}, "restarts alone"),
        ({"torchrunConfig": {"enabled": True, "maxRestarts": 2}}, "restartScope to Job"),
        ({"command": None}, "an image's own"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], text: str) -> None:
    job = pytorch()
    policy = {"restartMode": "InPlace", **change.pop("runPolicy", {})}
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    if "command" in change:
        container.pop("command")
        change = {}
    job["spec"] |= {**change, "runPolicy": policy}
    problems = check(PyTorchTrainingJob.model_validate(job))
    errors = [each.message for each in problems if each.severity is Severity.ERROR]
    assert any(text in each for each in errors), problems


@pytest.mark.parametrize("seed", range(SEEDS))
def test_counts_agree_in_both_modes(seed: int) -> None:
    """The same failures at the same times, whoever leads meanwhile: the same account."""
    accounts = []
    for mode in ("Recreate", "InPlace"):
        rng = random.Random(seed)
        world = running(mode, backoffLimit=rng.randint(0, 4))
        for _ in range(rng.randint(1, 6)):
            victims = rng.sample(range(WORKERS), rng.choice((1, 1, 2, WORKERS)))
            code, waits = rng.choice((1, 2, 137, 143)), rng.choice((0.0, 3.0, 400.0))
            changes_hands, steps = rng.random() < 0.4, rng.randint(0, 3)
            if world.phase != "Running":
                break
            for victim in victims:
                world.fail(str(victim), code)
                world.advance(rng.choice((0.1, 3.0)))
            world.report_all()
            for _ in range(steps):
                world.step()
            if changes_hands:
                world.forget()
            for seconds in (120.0, 120.0, 120.0, waits):
                world.play(seconds)
        accounts.append(world.account())
    assert accounts[0] == accounts[1]


def test_the_delay_is_that_of_new_pods() -> None:
    """A pass before its time changes nothing, whoever is ready."""
    world = running()
    world.fail("0")
    world.play()
    assert world.status is not None
    start = parse(world.status["internal"]["notBefore"])
    assert start is not None
    assert start - world.now == timedelta(seconds=SETTINGS.backoff_base_seconds)
    assert world.last.wake_at == start, render(world.now)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ended": 1}, "ended"),
        ({"message": None}, "message"),
        ({"exitCode": -1}, "hold.exitCode"),
        ({"exitCode": 256}, "hold.exitCode"),
        ({"attempt": "2"}, "hold.attempt"),
        ({"seconds": True}, "hold.seconds"),
    ],
)
def test_what_a_pod_tells_may_be_anything(change: dict[str, Any], field: str) -> None:
    message = {"uid": "u", "attempt": 2, "ended": True, "exitCode": 1, "seconds": 3, "message": "m"}
    now = World(pytorch()).now
    assert InPlaceReport.decode(message, now).at == now - timedelta(seconds=3)
    with pytest.raises(ValueError, match=field):
        InPlaceReport.decode({**message, **change}, now)
    with pytest.raises(ValueError, match="object"):
        InPlaceReport.decode([message], now)


def test_a_hang_restarts_the_job_where_it_is() -> None:
    world = running(hang={"action": "Restart"})
    before, said = world.uids, world.now

    def say() -> None:
        kinds = ("Waiting", "Idle", "Waiting", "Waiting")
        ranks = [
            replace(
                rank(number, kind, attempt=1),
                pod=world.name(str(number)),
                size=WORKERS,
                since=said,
                received_at=world.now,
            )
            for number, kind in enumerate(kinds)
        ]
        world.reports = replace(world.reports, ranks=tuple(ranks))

    say()
    world.settle()
    world.advance(300)
    say()
    world.play()
    world.play(SETTINGS.backoff_base_seconds)
    assert world.status is not None
    assert [each.get("reason") for each in world.status["attempts"]] == ["Hung", None]
    assert (world.uids, world.backoff, world.phase) == (before, 1, "Running")
    assert {world.attempt_of(str(number)) for number in range(WORKERS)} == {"2"}
