"""The check of nodes before the start: who is blamed, and what is told and waited for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import pytest

from tests.unit.lifecycle.world import START, World, pytorch
from trainyard.kinds.kind_registry import KINDS, describe
from trainyard.kinds.pytorch.rules import check
from trainyard.kinds.pytorch.spec import PyTorchTrainingJob
from trainyard.kinds.shared.job_settings import Settings
from trainyard.lifecycle.node_check import node_check_policy, node_check_results
from trainyard.lifecycle.node_check.node_check_results import (
    NodeCheckReport,
    PairResult,
    find_bad_nodes,
    pairing_rounds,
)
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.pod_reports import PodReports

Pair = frozenset[int]
HEARS = Settings(channel_address="reports.svc:7443")
CHECKED = {"nodeCheck": {"enabled": True}}


def names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def reported(
    count: int,
    failed: Collection[Pair] = (),
    seconds: Mapping[int, float] | None = None,
    slow: Mapping[Pair, float] | None = None,
    silent: Collection[int] = (),
) -> dict[str, NodeCheckReport]:
    """What pods say: each takes 0.1 s for a matmul and 0.02 s for a pair."""
    found = {}
    for number in set(range(count)) - set(silent):
        pairs = []
        for pair in itertools.chain.from_iterable(pairing_rounds(count)):
            if number in pair:
                (peer,) = set(pair) - {number}
                both = frozenset(pair)
                error = "RuntimeError: reset" if both in failed else ""
                pairs.append(PairResult(f"p{peer}", (slow or {}).get(both, 0.02), error))
        own = (seconds or {}).get(number, 0.1)
        found[f"p{number}"] = NodeCheckReport(
            "u", 1, node_check_results.DONE, START, port=1, seconds=own, pairs=tuple(pairs)
        )
    return found


def pairs_with(count: int, *members: int) -> set[Pair]:
    drawn = itertools.chain.from_iterable(pairing_rounds(count))
    return {frozenset(pair) for pair in drawn if set(pair) & set(members)}


def blamed(count: int, **said: Any) -> list[str]:
    apart = {name: f"node of {name}" for name in names(count)}
    return [each.pod for each in find_bad_nodes(names(count), reported(count, **said), apart)]


@pytest.mark.parametrize("count", range(14))
def test_nobody_has_two_partners_at_once_and_each_has_two_in_all(count: int) -> None:
    drawn = pairing_rounds(count)
    for each in drawn:
        busy = [number for pair in each for number in pair]
        assert len(busy) == len(set(busy))
    pairs = [pair for each in drawn for pair in each]
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    partners = [sum(number in pair for pair in pairs) for number in range(count)]
    assert set(partners) <= {min(2, count - 1)}


@pytest.mark.parametrize("count", range(3, 9))
def test_the_one_whose_pairs_all_fail_is_blamed(count: int) -> None:
    for bad in range(count):
        assert blamed(count, failed=pairs_with(count, bad)) == [f"p{bad}"]
        # It may be cut off from the controller too.
        assert blamed(count, failed=pairs_with(count, bad), silent=[bad]) == [f"p{bad}"]


@pytest.mark.parametrize("count", range(4, 9))
def test_the_one_whose_pairs_are_far_slower_is_blamed(count: int) -> None:
    for bad in range(count):
        pairs = pairs_with(count, bad)
        assert blamed(count, slow=dict.fromkeys(pairs, 1.1)) == [f"p{bad}"]
        assert blamed(count, slow=dict.fromkeys(pairs, 0.9)) == []  # busy, as machines are


def test_a_node_that_others_do_well_on_is_not_blamed_for_a_pair() -> None:
    reports = reported(6, failed=pairs_with(6, 2))
    places = {"p2": "a", "p4": "a"}
    assert find_bad_nodes(names(6), reports, places) == []
    (bad,) = find_bad_nodes(names(6), reports, places | {"p4": "b"})
    assert bad.pod == "p2"


def test_two_neighbours_that_are_bad_are_both_blamed() -> None:
    assert blamed(6, failed=pairs_with(6, 2, 3)) == ["p2", "p3"]


@pytest.mark.parametrize("count", range(2, 9))
def test_nobody_is_blamed_for_what_may_be_anothers_fault(count: int) -> None:
    everybody = pairs_with(count, *range(count))
    for one in everybody:
        assert blamed(count, failed=[one]) == []
    assert blamed(count, failed=everybody) == []  # a policy of the network, say


def test_who_takes_far_longer_for_a_matmul_is_blamed() -> None:
    assert blamed(2, seconds={1: 0.5}) == ["p1"]
    assert blamed(5, seconds={1: 0.5, 3: 0.41}) == ["p1", "p3"]
    assert blamed(5, seconds={1: 0.39}) == []
    assert blamed(5, seconds=dict.fromkeys(range(5), 0.001) | {1: 0.04}) == []
    assert blamed(1) == []


def test_whose_matmul_fails_is_blamed_where_it_succeeds_elsewhere() -> None:
    reports = reported(3)
    reports["p1"] = replace(reports["p1"], error="ArithmeticError: the result is wrong")
    (bad,) = find_bad_nodes(names(3), reports, {})
    assert bad == ("p1", "its matmul failed: ArithmeticError: the result is wrong")
    everywhere = {name: replace(each, error="no memory") for name, each in reports.items()}
    assert find_bad_nodes(names(3), everywhere, {}) == []


# What is told and waited for.


class Trial(World):
    """A job whose pods tell of their test."""

    def __init__(self, workers: int = 3, **policy: Any) -> None:
        job = pytorch(workers=workers, run_policy={**CHECKED, **policy})
        super().__init__(job, HEARS)

    def say(self, number: int, stage: str, **more: Any) -> None:
        """A report of one pod."""
        name = self.name(str(number))
        pod = Pod.decode(self.pods[name])
        more = {"host": name, "port": 1000 + number, **more}
        report = NodeCheckReport(pod.uid, pod.attempt, stage, self.now, **more)
        self.reports = replace(self.reports, node_checks={**self.reports.node_checks, name: report})

    def word(self, number: int) -> dict[str, Any]:
        """What it is told."""
        return node_check_policy.instruction_for_pod(
            self.status or {}, Pod.decode(self.pods[self.name(str(number))])
        )

    def do(self, number: int, **more: Any) -> None:
        """Its part of the test, as it is told, with pairs that go well but for what is given."""
        word = self.word(number)
        pairs = tuple(PairResult(each["replica"], 0.02, "") for each in word["pairs"])
        more = {"seconds": 0.1, "pairs": pairs, **more}
        self.say(number, node_check_results.DONE, run=word["run"], **more)

    @property
    def check(self) -> dict[str, Any]:
        assert self.status is not None
        found = self.status["nodeCheck"]
        assert isinstance(found, dict)
        return found

    def begun(self) -> Self:
        """All are ready, and told to begin."""
        self.running()
        for number in range(len(self.pods)):
            assert self.word(number) == {"say": "wait"}
            self.say(number, node_check_results.READY)
        self.settle()
        assert self.check["state"] == "Checking"
        return self


def test_once_all_are_ready_each_is_told_its_partners_and_then_to_start() -> None:
    world = Trial().begun()
    words = [world.word(number) for number in range(3)]
    assert {word["run"] for word in words} == {world.check["time"]}
    found = {
        (number, each["replica"], each["rank"], each["host"], each["port"], each["until"])
        for number, word in enumerate(words)
        for each in word["pairs"]
    }
    zero, one, two = (world.name(str(number)) for number in range(3))
    assert found == {
        (0, one, 0, zero, 1000, 45),
        (1, zero, 1, zero, 1000, 45),
        (1, two, 0, one, 1001, 90),
        (2, one, 1, one, 1001, 90),
        (0, two, 0, zero, 1000, 135),
        (2, zero, 1, zero, 1000, 135),
    }
    world.do(0)
    world.do(1)
    world.settle()
    assert world.check["state"] == "Checking"
    assert world.word(0)["say"] == "check"
    world.do(2)
    world.settle()
    assert world.check["state"] == "Passed"
    assert "members" not in world.check
    assert [world.word(number) for number in range(3)] == [{"say": "start"}] * 3
    times = "3 replicas: matmul 0.1 s, all-reduce in pairs 0.02 s"
    assert world.messages("NodeCheck") == [f"The nodes have passed their check: {times}."]


def test_a_bad_node_is_named_and_the_job_starts() -> None:
    world = Trial().begun()
    for number in range(3):
        world.do(number, seconds=0.9 if number == 1 else 0.1)
    world.settle()
    assert world.check["state"] == "BadNodes"
    why = "its matmul took 0.9 s, and 0.1 s elsewhere"
    assert world.check["badNodes"] == [{"replica": world.name("1"), "node": "node", "reason": why}]
    text = f"A node did badly in the check before the start: worker-1 on node: {why}."
    assert world.messages("NodeCheck") == [text]
    assert world.word(1) == {"say": "start"}


def test_one_replica_has_nobody_to_be_compared_with() -> None:
    world = Trial(1).begun()
    assert world.word(0)["pairs"] == []
    world.do(0)
    world.settle()
    assert (world.check["state"], world.check["message"]) == ("Passed", "1 replicas: matmul 0.1 s")


def test_those_that_cannot_are_told_of_and_not_waited_for() -> None:
    world = Trial().running()
    world.say(0, node_check_results.READY)
    world.say(1, node_check_results.LEFT, port=0, error="torch cannot be used: no module")
    world.say(2, node_check_results.READY)
    world.settle()
    assert [each["replica"] for each in world.check["members"]] == [
        world.name("0"),
        world.name("2"),
    ]
    assert world.word(1) == {"say": "start"}
    world.do(0)
    world.say(2, node_check_results.LEFT, error="the pairs took too long")
    world.settle()
    assert world.check["state"] == "Incomplete"
    text = "2 of 3 replicas were not tested, worker-1 first: torch cannot be used: no module"
    assert world.check["message"] == text


def test_who_leaves_is_not_blamed_for_the_failure_of_its_pairs() -> None:
    world = Trial(4).begun()
    gone = world.name("1")
    for number in (0, 2, 3):
        pairs = tuple(
            PairResult(e["replica"], 0.02, "reset" if e["replica"] == gone else "")
            for e in world.word(number)["pairs"]
        )
        world.do(number, pairs=pairs)
    world.say(1, node_check_results.LEFT, error="the pairs took too long")
    world.settle()
    assert world.check["state"] == "Incomplete"


def test_who_says_nothing_more_is_waited_for_as_long_as_the_rounds_may_take() -> None:
    world = Trial(4).begun()
    for name, pod in world.pods.items():
        pod["spec"]["nodeName"] = f"node of {name}"
    cut_off = world.name("1")
    for number in (0, 2, 3):
        pairs = tuple(
            PairResult(e["replica"], 0.02, "reset" if e["replica"] == cut_off else "")
            for e in world.word(number)["pairs"]
        )
        world.do(number, pairs=pairs)
    world.advance(104).settle()
    assert world.check["state"] == "Checking"
    world.advance(2).settle()
    (bad,) = world.check["badNodes"]
    assert bad["replica"] == cut_off


def test_one_that_runs_and_says_nothing_is_waited_for_two_minutes() -> None:
    world = Trial().running()
    for number in (0, 1):
        world.say(number, node_check_results.READY)
    world.advance(119).settle()
    assert "nodeCheck" not in (world.status or {})
    world.advance(2).settle()
    assert len(world.check["members"]) == 2
    # One that takes its time, and says so, is waited for longer.
    world = Trial().running()
    for number in (0, 1):
        world.say(number, node_check_results.READY)
    world.say(2, node_check_results.BEGUN, port=0)
    world.advance(200).settle()
    assert "nodeCheck" not in (world.status or {})


def test_where_nobody_says_anything_that_is_told_once() -> None:
    world = Trial().running()
    world.advance(121).settle()
    assert world.check["state"] == "Incomplete"
    world.advance(121).settle()
    text = "The check of the nodes is not complete"
    why = "3 of 3 replicas were not tested, worker-0 first"
    assert world.messages("NodeCheck") == [f"{text}: {why}."]


def test_each_start_of_all_has_its_own() -> None:
    world = Trial().begun()
    for number in range(3):
        world.do(number)
    world.settle().exit("1", 1).settle().advance(600).settle().run().settle()
    assert world.check["attempt"] == 1
    assert world.word(0) == {"say": "wait"}
    world.begun()
    assert world.check["attempt"] == 2


def test_another_controller_goes_on() -> None:
    world = Trial().begun()
    run = world.word(0)["run"]
    world.reports = PodReports()
    world.settle()
    assert world.word(0)["run"] == run
    for number in range(3):
        world.do(number)
    world.settle()
    assert world.check["state"] == "Passed"


def test_pods_are_not_tested_without_a_channel_and_that_is_told() -> None:
    world = World(pytorch(run_policy=CHECKED)).running()
    assert "nodeCheck" not in (world.status or {})
    model = KINDS["PyTorchTrainingJob"].model.model_validate(world.job)
    (told,) = describe(model, Settings()).warnings  # type: ignore[arg-type]
    assert told.startswith("runPolicy.nodeCheck is ignored: pods have no way to report")
    assert not describe(model, HEARS).warnings  # type: ignore[arg-type]
    command = world.pods[world.name("0")]["spec"]["containers"][0]["command"]
    assert command == ["x"]


def test_what_others_wrote_there_is_passed_over() -> None:
    for junk in (3, {}, {"attempt": 1, "state": "Checking"}):
        world = Trial().running()
        assert world.status is not None
        world.status["nodeCheck"] = junk
        assert world.word(0) == {"say": "wait"}
        for number in range(3):
            world.say(number, node_check_results.READY)
        world.settle()
        assert world.check["state"] == "Checking"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"elastic": {"enabled": True}, "torchrunConfig": {"enabled": True}}, "elastic job"),
        ({"command": None}, "is required with nodeCheck"),
        ({"runPolicy": {"nodeCheck": {"timeoutSeconds": 9}}}, "enabled is not true"),
        ({}, ""),
    ],
)
def test_where_it_cannot_be_that_is_told(change: dict[str, Any], text: str) -> None:
    job = pytorch(run_policy=CHECKED)
    if "command" in change:
        job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0].pop("command")
        change = {}
    job["spec"] |= change
    problems = [each.message for each in check(PyTorchTrainingJob.model_validate(job))]
    assert any(text in each for each in problems) if text else not problems


def test_the_check_comes_before_what_holds_a_pod() -> None:
    world = Trial(restartMode="InPlace").running()
    container = world.pods[world.name("1")]["spec"]["containers"][0]
    script, hold = (n for n, word in enumerate(container["command"]) if word == "-c")
    assert "node_check.py" in container["command"][script + 1]
    assert "hold.py" in container["command"][hold + 1]
    assert container["command"][-1] == "x"
    names = [each["name"] for each in container["env"]]
    assert names.count("TRAINYARD_POD_UID") == 1
    assert "TRAINYARD_NODE_CHECK" in names


def test_one_that_joins_others_is_not_checked() -> None:
    world = Trial(restartScope="Replica").running()
    world.exit("1", 1).settle().advance(600).settle()
    names_of = {
        name: [each["name"] for each in pod["spec"]["containers"][0]["env"]]
        for name, pod in world.pods.items()
    }
    checked = [name for name, told in names_of.items() if "TRAINYARD_NODE_CHECK" in told]
    assert checked == [world.name("0"), world.name("2")]


def test_every_field_of_a_report_is_read() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    pairs = [{"replica": "w-1", "seconds": 0.5}, {"replica": "w-2", "error": "timed  out\n"}]
    variables = {
        "uid": "u",
        "attempt": 3.0,
        "stage": "done",
        "run": "r",
        "host": "10.0.0.1",
        "port": 65535,
        "seconds": 2.5,
        "pairs": pairs,
        "error": "x" * 300,
    }
    assert NodeCheckReport.decode(variables, at) == NodeCheckReport(
        "u",
        3,
        "done",
        at,
        "r",
        "10.0.0.1",
        65535,
        2.5,
        (PairResult("w-1", 0.5, ""), PairResult("w-2", 0.0, "timed out")),
        "x" * 200,
    )
    bare = NodeCheckReport.decode({"stage": "begun"}, at)
    assert bare == NodeCheckReport("", 0, "begun", at)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (7, "nodeCheck.stage: must be one of begun, ready, testing, done, left"),
        ({"stage": "over"}, "nodeCheck.stage: must be one of begun, ready, testing, done, left"),
        ({"stage": "done", "pairs": {}}, "nodeCheck.pairs: must be a list of two objects at most"),
        ({"stage": "done", "pairs": [7]}, "nodeCheck.pairs: must be a list of two objects"),
        ({"stage": "done", "pairs": [{}] * 3}, "nodeCheck.pairs: must be a list of two objects"),
        ({"stage": "done", "attempt": -1}, "nodeCheck.attempt"),
        ({"stage": "done", "port": 65536}, "nodeCheck.port"),
        ({"stage": "done", "seconds": "1"}, "nodeCheck.seconds"),
        ({"stage": "done", "pairs": [{"seconds": 1e10}]}, "nodeCheck.pairs.seconds"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused_by_its_field(told: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        NodeCheckReport.decode(told, datetime(2030, 1, 1, tzinfo=UTC))
