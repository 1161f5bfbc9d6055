"""Bad nodes that a job's pods are kept off: which, what it costs, and when it is given up."""

from __future__ import annotations

import itertools
from typing import Any, Self

import pytest

from tests.unit.lifecycle.test_node_check import Trial
from trainyard.lifecycle.node_check import node_check_results
from trainyard.lifecycle.node_check.node_check_avoidance import (
    MAX_AVOIDED_NODES,
    UNSCHEDULABLE_LIMIT,
    add_node_affinity,
)
from trainyard.lifecycle.node_check.node_check_results import PairResult
from trainyard.schema.times import render

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def keeps_off(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [name]}


def terms_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    by_node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (by_node.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    assert isinstance(terms, list)
    return terms


class Nodes(Trial):
    """Pods that get nodes of their own: `node-0` and so on, as long as none is named."""

    def place(self, *nodes: str) -> Self:
        """Let pods run, on these nodes."""
        self.settle().run()
        for number, node in itertools.zip_longest(range(len(self.pods)), nodes):
            pod = self.pods[self.name(str(number))]
            pod["spec"]["nodeName"] = node or f"node-{number}"
        self.settle()
        return self

    def tried(self, *bad: int) -> Self:
        """The check of all, in which these are slow."""
        for number in range(len(self.pods)):
            self.say(number, node_check_results.READY)
        self.settle()
        for number in range(len(self.pods)):
            self.do(number, seconds=0.9 if number in bad else 0.1)
        return self

    def restarted(self) -> Self:
        """A failure that another start follows."""
        self.exit("0", 1).settle().advance(600).settle()
        return self

    @property
    def terms(self) -> list[list[dict[str, Any]]]:
        """Of each pod."""
        return [terms_of(pod) for pod in self.pods.values()]


def test_all_get_other_pods_that_are_kept_off_the_bad_node_at_no_cost() -> None:
    world = Nodes().place().tried(1)
    before = dict(world.pods)
    world.step()
    assert world.check["state"] == "BadNodes"
    assert world.check["avoided"] == ["node-1"]
    assert [each["avoided"] for each in world.check["badNodes"]] == [True]
    # The command starts nowhere before the pods are gone.
    assert [world.word(number)["say"] for number in range(3)] == ["wait"] * 3
    world.settle()
    assert not {pod["metadata"]["uid"] for pod in before.values()} & {
        pod["metadata"]["uid"] for pod in world.pods.values()
    }
    assert world.terms == [[{"matchFields": [keeps_off("node-1")]}]] * 3
    assert world.backoff == 0
    assert world.messages("NodeCheck")[-1] == "Pods of this job are kept off node-1 from now on."
    assert (
        "was taken away (BadNode); 3 replicas will be created again, at no cost."
        in (world.messages("Restart")[-1])
    )
    world.place("node-0", "node-3", "node-2").tried().settle()
    assert (world.check["state"], world.check["avoided"]) == ("Passed", ["node-1"])
    assert world.word(1) == {"say": "start"}
    world.restarted()
    assert world.terms == [[{"matchFields": [keeps_off("node-1")]}]] * 3
    assert world.backoff == 1


def test_where_replicas_restart_alone_only_the_one_on_it_does() -> None:
    world = Nodes(restartScope="Replica").place().tried(1)
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}
    world.step()
    assert [world.word(number)["say"] for number in range(3)] == ["start", "wait", "start"]
    world.settle()
    after = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}
    assert {name for name in before if before[name] != after[name]} == {world.name("1")}
    assert terms_of(world.pods[world.name("1")]) == [{"matchFields": [keeps_off("node-1")]}]
    assert world.backoff == 0


def test_pods_that_restart_in_place_leave_a_bad_node() -> None:
    world = Nodes(restartMode="InPlace").place().tried(1).settle()
    assert world.status is not None
    assert "inPlaceUntil" not in world.status["internal"]
    assert world.terms == [[{"matchFields": [keeps_off("node-1")]}]] * 3


@pytest.mark.parametrize("nodes", [("node",) * 3, ("node-1", "node-1", "node-1"), ("",) * 3])
def test_where_no_replica_is_elsewhere_nothing_is_avoided(nodes: tuple[str, ...]) -> None:
    world = Nodes().place()
    for pod, node in zip(world.pods.values(), nodes, strict=True):
        pod["spec"]["nodeName"] = node
    world.tried(1).settle()
    assert world.check["state"] == "BadNodes"
    assert "avoided" not in world.check
    assert world.word(1) == {"say": "start"}
    assert not world.messages("Restart")


def test_a_pod_that_ends_up_there_again_starts() -> None:
    world = Nodes()
    spec = world.job["spec"]["replicaSpecs"][0]["template"]["spec"]
    spec["nodeName"] = "node-1"  # of which the kubelet would refuse a pod that is kept off it
    world.place("node-0", "node-1", "node-2").tried(1).settle()
    assert world.check["avoided"] == ["node-1"]
    assert world.terms == [[]] * 3
    world.place("node-0", "node-1", "node-2").tried(1).settle()
    assert world.check["state"] == "BadNodes"
    assert "avoided" not in world.check["badNodes"][0]
    assert world.word(1) == {"say": "start"}
    assert len(world.messages("Restart")) == 1


def test_pods_that_find_no_other_node_are_placed_anywhere_after_two_minutes() -> None:
    world = Nodes().place().tried(1).settle()
    world.run("0", "1")
    alone = world.pods[world.name("2")]
    alone["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    ]
    assert world.settle().last.wake_at == world.now + UNSCHEDULABLE_LIMIT
    world.advance(119).settle()
    assert world.check["avoided"] == ["node-1"]
    world.advance(1).settle()
    assert "avoided" not in world.check
    assert world.check["avoidanceEnded"] == render(world.now)
    text = (
        "Pods of this job are kept off node-1 no longer: "
        f"Pod[{world.name('2')}] has found no other node for 120 s."
    )
    assert world.messages("NodeCheck")[-1] == text
    assert "was taken away (NoOtherNode)" in world.messages("Restart")[-1]
    world.advance(600).settle()
    assert world.terms == [[]] * 3
    assert world.backoff == 0
    # It does not begin again.
    world.place().tried(1).settle()
    assert world.check["state"] == "BadNodes"
    assert "avoided" not in world.check
    assert world.word(1) == {"say": "start"}
    for pod in world.pods.values():
        pod["status"] = {"phase": "Pending"} | {
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "none"}]
        }
    world.advance(600).settle()
    assert len(world.messages("Restart")) == 2


def test_no_more_than_eight_are_avoided() -> None:
    world = Nodes()
    for number in range(MAX_AVOIDED_NODES):
        world.advance(600).place("a", f"bad-{number}", "b").tried(1).settle()
        assert world.check["avoided"][-1] == f"bad-{number}"
        world.advance(600)
    world.place("a", "bad-8", "b").tried(1).settle()
    assert world.check["avoided"] == [f"bad-{number}" for number in range(MAX_AVOIDED_NODES)]
    assert world.word(1) == {"say": "start"}
    assert world.backoff == 0


def test_another_controller_that_has_heard_nothing_has_it_go_on() -> None:
    world = Nodes().place().tried(1)
    world.status = world.look().status  # which is written, and nothing is done
    world.reports = type(world.reports)()
    world.settle()
    assert world.terms == [[{"matchFields": [keeps_off("node-1")]}]] * 3
    assert len(world.messages("Restart")) == 0  # the one before has told that


@pytest.mark.parametrize("junk", [{"avoided": "node-1"}, {"avoided": [1, ""]}, {"badNodes": "x"}])
def test_what_others_wrote_there_keeps_off_nothing(junk: dict[str, Any]) -> None:
    world = Nodes().place().tried()
    assert world.status is not None
    world.status["nodeCheck"] |= junk
    world.settle().restarted()
    assert world.terms == [[]] * 3


def test_a_pair_that_fails_moves_a_pod_too() -> None:
    world = Nodes(4).place()
    for number in range(4):
        world.say(number, node_check_results.READY)
    world.settle()
    bad = world.name("1")
    for number in range(4):
        word = world.word(number)
        pairs = tuple(
            PairResult(e["replica"], 0.02, "reset" if number == 1 or e["replica"] == bad else "")
            for e in word["pairs"]
        )
        world.do(number, pairs=pairs)
    world.settle()
    assert world.check["avoided"] == ["node-1"]


# Beside what a user asks for.


def pod(**node: Any) -> dict[str, Any]:
    affinity = {"podAffinity": {}, "nodeAffinity": node}
    return {"metadata": {"annotations": {"a": "b"}}, "spec": {"affinity": affinity}}


def test_each_term_of_the_users_is_narrowed_and_an_empty_one_still_matches_nothing() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    preferred = [{"weight": 1, "preference": zone}]
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    mine = pod(**{REQUIRED: {"nodeSelectorTerms": [zone, name, {}]}, key: preferred})
    found = add_node_affinity(mine, ["x", "y"])
    others = [keeps_off("x"), keeps_off("y")]
    assert terms_of(found) == [
        {**zone, "matchFields": others},
        {"matchFields": [*name["matchFields"], *others]},
        {},
    ]
    assert found["spec"]["affinity"]["nodeAffinity"][key] == preferred
    assert found["spec"]["affinity"]["podAffinity"] == {}
    assert found["metadata"]["annotations"] == {"a": "b", "trainyard.dev/avoids": "x,y"}
    assert terms_of(mine) == [zone, name, {}]  # what the template has stays as it is
