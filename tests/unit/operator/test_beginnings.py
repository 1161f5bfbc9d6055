"""When a job's first pods wait for its account, and when they need not (decision 345)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.simulation.network import Call, Conditions, Fault, Wire
from tests.simulation.server import Key, Obj
from tests.simulation.virtual_time import run
from tests.unit.operator.test_passes import Yard, in_yard, pytorch
from trainyard.kinds.shared.settings import Settings
from trainyard.kube.client import Client
from trainyard.operator.controller import Controller
from trainyard.operator.host import Host
from trainyard.operator.settings import OperatorSettings

JOBS = "pytorchtrainingjobs"
REPLICAS = 3


def writes(yard: Yard, fault: Callable[[Call], Fault] = lambda call: Fault.NONE) -> list[str]:
    """What is asked for from now on, without events."""
    asked: list[str] = []

    def note(call: Call) -> Fault:
        if call.method != "GET" and call.key.plural != "events":
            asked.append(f"{call.method} {call.key.plural}")
        return fault(call)

    yard.fault = note
    return asked


def _wire(yard: Yard, conditions: Conditions) -> Wire:
    rng = random.Random(4)
    return Wire(yard.server, conditions, rng, 2, bool, yard._sent, lambda *_: None)


@asynccontextmanager
async def leading(yard: Yard, **host: Any) -> AsyncIterator[Controller]:
    """Another controller of the same cluster, once it has read that."""
    controller = Controller(
        Client(_wire(yard, yard.conditions)), OperatorSettings(), Host(yard.clock, **host)
    )
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    yield controller
    task.cancel()
    await asyncio.wait([task])


def without_controller(body: Callable[[Yard], Any]) -> None:
    """Run `body` where nobody works yet."""

    async def main() -> None:
        await body(Yard(Settings()))

    run(main())


FIRST = ["POST services", *["POST pods"] * REPLICAS]


def test_pods_of_a_job_that_came_while_it_led_wait_for_no_status() -> None:
    async def body(yard: Yard) -> None:
        asked = writes(yard)
        key = yard.submit(pytorch(replicas=REPLICAS))
        await asyncio.sleep(10)
        assert asked == [*FIRST, f"PUT {JOBS}"]
        status = yard.status(key)
        assert status["replicas"] == REPLICAS
        assert [each["number"] for each in status["attempts"]] == [1]
        events = [each["reason"] for each in yard.server.all("events")]
        assert sorted(events) == ["Created", "NewReplica", "Start"]

    in_yard(body)


def test_pods_of_a_job_that_was_there_before_wait_for_its_account() -> None:
    async def body(yard: Yard) -> None:
        asked = writes(yard)
        yard.submit(pytorch(replicas=REPLICAS))
        async with leading(yard):
            await asyncio.sleep(10)
        assert asked[:2] in ([f"PUT {JOBS}", FIRST[0]], [FIRST[0], f"PUT {JOBS}"])
        assert asked[2:] == [*FIRST[1:], f"PUT {JOBS}"]

    without_controller(body)


def test_pods_wait_for_the_account_where_another_may_lead_by_now() -> None:
    async def body(yard: Yard) -> None:
        asked = writes(yard)
        async with leading(yard, leads=lambda: False):
            yard.submit(pytorch(replicas=REPLICAS))
            await asyncio.sleep(10)
        assert asked.index(f"PUT {JOBS}") < asked.index("POST pods")

    without_controller(body)


def test_pods_wait_for_the_account_where_it_is_not_known_how_far_jobs_are() -> None:
    async def body(yard: Yard) -> None:
        yard.fault = lambda call: (
            Fault.SERVER_ERROR
            if call.method == "GET" and call.params.get("limit") == "1"
            else Fault.NONE
        )
        async with leading(yard):
            asked = writes(yard)
            yard.submit(pytorch(replicas=REPLICAS))
            await asyncio.sleep(10)
        assert asked.index(f"PUT {JOBS}") < asked.index("POST pods")

    without_controller(body)


def test_pods_wait_for_a_service_that_is_refused() -> None:
    async def body(yard: Yard) -> None:
        asked = writes(
            yard, lambda call: Fault.REFUSED if call.key.plural == "services" else Fault.NONE
        )
        key = yard.submit(pytorch(replicas=REPLICAS))
        await asyncio.sleep(10)
        assert "POST pods" not in asked
        told = [each["message"] for each in yard.status(key)["conditions"]]
        assert any("exceeded quota" in text for text in told), told

    in_yard(body)


def test_a_change_that_comes_before_the_account_is_told_as_one() -> None:
    """The pods are of the job as it was."""

    async def body(yard: Yard) -> None:
        def changes(call: Call) -> Fault:
            key = Key(JOBS, "default", "train")
            if call.method == "PUT" and yard.server.get(key)["metadata"]["generation"] == 1:
                template = yard.server.get(key)["spec"]["replicaSpecs"][0]["template"]
                (main,) = template["spec"]["containers"]
                changed = {"spec": {"containers": [{**main, "image": "other"}]}}
                replica = {**yard.server.get(key)["spec"]["replicaSpecs"][0], "template": changed}
                yard.server.patch(key, {"spec": {"replicaSpecs": [replica]}})
            return Fault.NONE

        asked = writes(yard, changes)
        key = yard.submit(pytorch(replicas=REPLICAS))
        await asyncio.sleep(10)
        assert asked.count("POST pods") == REPLICAS
        assert yard.status(key)["observedGeneration"] == 2
        told = [each["message"] for each in yard.server.all("events")]
        assert any("spec" in text for text in told), told

    in_yard(body)


@pytest.mark.parametrize("failed", [0, 1])
def test_who_takes_over_before_the_account_is_stored_adopts_the_pods(failed: int) -> None:
    """What has failed meanwhile counts, and once."""

    async def body(yard: Yard) -> None:
        refused = writes(
            yard, lambda call: Fault.SERVER_ERROR if call.method == "PUT" else Fault.NONE
        )
        async with leading(yard):
            key = yard.submit(pytorch(replicas=REPLICAS, policy="OnFailure"))
            await asyncio.sleep(1)
        assert f"PUT {JOBS}" in refused
        assert not yard.status(key)
        pods = yard.pods()
        assert len(pods) == REPLICAS
        yard.let_run()
        for pod in pods[:failed]:
            where = Key("pods", "default", pod["metadata"]["name"])
            yard.server.set(where, status={"phase": "Failed"})
        writes(yard)
        async with leading(yard):
            await asyncio.sleep(5)
            yard.finish_deletions()
            await asyncio.sleep(60)
        status: Obj = yard.status(key)
        assert status["backoffCount"] == failed
        assert [each["number"] for each in status["attempts"]] == [*range(1, failed + 2)]
        uids = {pod["metadata"]["uid"] for pod in yard.pods()}
        assert len(uids) == REPLICAS
        if not failed:
            assert uids == {pod["metadata"]["uid"] for pod in pods}

    without_controller(body)


def test_nothing_is_kept_of_what_has_an_account() -> None:
    async def body(yard: Yard) -> None:
        for number in range(5):
            yard.submit(pytorch(f"job-{number}"))
        await asyncio.sleep(10)
        beginnings = yard.controller._beginnings
        assert not beginnings._came
        assert not beginnings._accounts

    in_yard(body)


def test_a_job_that_a_late_watch_shows_as_new_is_not_begun_again() -> None:
    """It came, and ended, while another led."""

    async def body(yard: Yard) -> None:
        late = Conditions(lambda call: Fault.NONE, lambda key: None)
        late.lag[JOBS] = 100.0
        standby = Controller(Client(_wire(yard, late)), OperatorSettings(), Host(yard.clock))
        watching = asyncio.create_task(standby.watch())
        async with leading(yard):
            key = yard.submit(pytorch(replicas=1, runPolicy={"cleanUpPolicy": "All"}))
            await asyncio.sleep(5)
            (pod,) = yard.pods()
            yard.let_run()
            where = Key("pods", "default", pod["metadata"]["name"])
            yard.server.set(where, status={"phase": "Succeeded"})
            await asyncio.sleep(5)
            yard.finish_deletions()
            await asyncio.sleep(5)
        assert (yard.status(key)["phase"], yard.pods()) == ("Succeeded", [])
        yard.sent.clear()
        working = asyncio.create_task(standby.work())
        await asyncio.sleep(300)
        assert standby.jobs["PyTorchTrainingJob"].get("default", "train") is not None
        assert yard.sent["POST pods"] == 0
        for task in (watching, working):
            task.cancel()
        await asyncio.wait([watching, working])

    without_controller(body)
