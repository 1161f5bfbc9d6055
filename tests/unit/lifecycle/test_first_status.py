"""What the first status of a job tells, and what happens between it and the first pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.lifecycle.world import SETTINGS, World, colossalai, deepspeed, generic, pytorch
from tests.unit.lifecycle.world import elastic as elastic_job
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle.actions import Create
from trainyard.lifecycle.observed import Conflict, Refusal

ACCOUNT = {"phase", "observedGeneration", "specHash", "attempts", "internal", "conditions"}


@pytest.mark.parametrize("make", [pytorch, generic, deepspeed, colossalai])
def test_the_first_status_is_whole_and_nothing_is_told_twice(make: object) -> None:
    world = World(make())  # type: ignore[operator]
    first = world.step()
    assert set(first.status or {}) > ACCOUNT
    assert world.phase == "Pending"
    assert world.step().status
    assert world.messages("Created")
    assert len(world.messages("NewReplica")) == 1
    assert not world.step().status


def test_an_elastic_job_that_grows_between_the_two_statuses_gets_no_newcomer_twice() -> None:
    world = World(elastic_job(1, 2, 4))
    world.step()
    world.run()
    world.job["spec"]["elastic"]["expectedReplicas"] = 3
    world.job["metadata"]["generation"] = 2
    world.settle()
    assert len(world.pods) == 3
    assert [world.attempt_of(str(n)) for n in range(3)] == ["1", "1", "2"]


def test_trouble_is_told_at_once_and_once() -> None:
    world = World(pytorch(workers=2))
    world.conflicts = (Conflict(PODS, world.name("1"), "Pod default/foreign"),)
    world.step()
    assert world.condition("Running") is not None
    world.settle()
    assert len(world.messages("NameConflict")) == 1


def test_a_job_without_pods_tells_all_at_once() -> None:
    paused = World(pytorch(runMode={"pause": {"enabled": True}}))
    paused.step()
    assert paused.condition("Paused") is not None
    refused = World(pytorch())
    refused.refusals = (Refusal(SERVICES, refused.workload.base, 403, "quota", refused.now),)
    refused.step()
    assert refused.condition("Running") is not None


def test_a_status_that_was_lost_is_not_a_beginning() -> None:
    world = World(pytorch(workers=2)).running()
    world.status = None
    world.remove("1")
    plan = world.step()
    assert any(isinstance(each, Create) and each.resource == PODS for each in plan.actions)
    assert "tasks" in (world.status or {})


def test_an_end_between_the_two_statuses_counts_once() -> None:
    """Whoever wrote the status and created the pods has died since."""
    world = World(pytorch(workers=2, run_policy={"backoffLimit": 3}))
    world.step()
    world.run().exit("1").settle()
    assert world.backoff == 1
    assert [a["number"] for a in (world.status or {})["attempts"]] == [1, 2]


def test_pods_that_never_came_are_created_by_the_next() -> None:
    world = World(pytorch(workers=2))
    world.status = world.look().status
    world.settle()
    assert len(world.pods) == 2
    assert world.backoff == 0
    assert world.attempt_of("worker-0") == "1"


def test_a_pause_between_the_two_statuses_takes_the_pods() -> None:
    world = World(pytorch(workers=2))
    world.step()
    world.job["spec"]["runMode"] = {"pause": {"enabled": True}}
    world.settle()
    assert world.phase == "Paused"
    assert not world.pods


def test_a_gang_waits_for_its_scheduler_in_the_open() -> None:
    job = pytorch(scheduler={"t9kScheduler": {"queue": "q"}})
    world = World(job, replace(SETTINGS, gang_backend=GangBackend.NONE))
    world.step()
    assert world.condition("Running") is not None
