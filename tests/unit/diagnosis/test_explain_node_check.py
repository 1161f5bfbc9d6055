"""What `explain` says of the check of nodes before the start."""

from __future__ import annotations

from tests.unit.diagnosis.test_explain_lifecycle import explained
from tests.unit.lifecycle.test_node_check import Trial
from tests.unit.lifecycle.test_node_check_avoidance import Nodes
from trainyard.lifecycle.node_check import node_check_results


def test_that_it_goes_on() -> None:
    world = Trial().begun()
    world.advance(7)
    text = explained(world)
    assert "its nodes are being checked before the commands start, for 7s" in text
    assert "3 replicas take part" in text


def test_which_node_did_badly() -> None:
    world = Trial().begun()
    for number in range(3):
        world.do(number, seconds=0.9 if number == 1 else 0.1)
    text = explained(world.settle())
    assert "the node of worker-1, node, did badly in the check before the start" in text
    assert "its matmul took 0.9 s, and 0.1 s elsewhere" in text


def test_whether_pods_are_kept_off_it() -> None:
    for nodes, advice in (
        (("a", "b", "c"), "look at that node; pods of this job are kept off it"),
        (("a", "a", "a"), "keep the job off it by its template's affinity"),
    ):
        text = explained(Nodes().place(*nodes).tried(1).settle())
        assert advice in text


def test_that_nobody_could_be_tested() -> None:
    world = Trial().running()
    for number in range(3):
        world.say(number, node_check_results.LEFT, error="torch cannot be used: none")
    text = explained(world.settle())
    assert "the check of its nodes before the start is not complete" in text
    assert "torch cannot be used: none" in text
