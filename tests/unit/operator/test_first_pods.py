"""No pod is created before a status that accounts for it is stored, whoever leads (decision 25)."""

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
from tests.unit.operator.test_reconciles import Yard, in_yard, pytorch
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.transport import Request, Response
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.runtime_context import RuntimeContext

JOBS = "pytorchtrainingjobs"
REPLICAS = 3
STATUS, FIRST = f"PUT {JOBS}", ["POST services", *["POST pods"] * REPLICAS]


class StoppableWire(Wire):
    """The requests of a process that can be stopped together with its clocks."""

    __slots__ = ("runs",)
    runs: asyncio.Event

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """Send it once the process goes on."""
        if request.method != "GET":
            await self.runs.wait()
        return await Wire.request(self, request, timeout_seconds)


def writes(yard: Yard, fault: Callable[[Call], Fault] = lambda call: Fault.NONE) -> list[str]:
    """What is asked for from now on, without events."""
    asked: list[str] = []

    def note(call: Call) -> Fault:
        if call.method != "GET" and call.key.plural != "events":
            asked.append(f"{call.method} {call.key.plural}")
        return fault(call)

    yard.fault = note
    return asked


def _wire(yard: Yard, conditions: Conditions, make: type[Wire] = Wire) -> Any:
    rng = random.Random(4)
    return make(yard.server, conditions, rng, 2, bool, yard._sent, lambda *_: None)


@asynccontextmanager
async def leading(yard: Yard, wire: Wire | None = None) -> AsyncIterator[Controller]:
    """Another controller of the same cluster, once it has read that."""
    client = Client(wire or _wire(yard, yard.conditions))
    controller = Controller(client, OperatorSettings(), RuntimeContext(yard.clock))
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    yield controller
    task.cancel()
    await asyncio.wait([task])


async def succeed(yard: Yard) -> None:
    """The job's only pod runs, and succeeds."""
    (pod,) = yard.pods()
    yard.let_run()
    where = Key("pods", "default", pod["metadata"]["name"])
    yard.server.set(where, status={"phase": "Succeeded"})
    await asyncio.sleep(5)
    yard.finish_deletions()
    await asyncio.sleep(5)


def without_controller(body: Callable[[Yard], Any]) -> None:
    """Run `body` where nobody works yet."""

    async def main() -> None:
        await body(Yard(Settings()))

    run(main())


@pytest.mark.parametrize("was_there", [False, True])
def test_first_pods_wait_for_the_status(was_there: bool) -> None:
    async def body(yard: Yard) -> None:
        asked = writes(yard)
        if was_there:
            key = yard.submit(pytorch(replicas=REPLICAS))
        async with leading(yard):
            if not was_there:
                key = yard.submit(pytorch(replicas=REPLICAS))
            await asyncio.sleep(10)
        assert asked == [STATUS, *FIRST, STATUS]
        status = yard.status(key)
        assert status["replicas"] == REPLICAS
        assert [each["number"] for each in status["attempts"]] == [1]
        events = [each["reason"] for each in yard.server.all("events")]
        assert sorted(events) == ["Created", "NewReplica", "Start"]

    without_controller(body)


def test_a_leader_that_was_stopped_creates_nothing_of_a_job_that_has_ended_since() -> None:
    """A virtual machine may be stopped with its clocks, so its leader cannot know of it."""

    async def body(yard: Yard) -> None:
        wire = _wire(yard, yard.conditions, StoppableWire)
        wire.runs = asyncio.Event()
        async with leading(yard, wire):
            key = yard.submit(pytorch(replicas=1, runPolicy={"cleanUpPolicy": "All"}))
            await asyncio.sleep(1)  # its pass has begun, and its first write is not sent yet
            async with leading(yard):
                await asyncio.sleep(5)
                await succeed(yard)
            assert (yard.status(key)["phase"], yard.pods()) == ("Succeeded", [])
            services = [each["metadata"]["uid"] for each in yard.server.all("services")]
            yard.sent.clear()
            wire.runs.set()
            await asyncio.sleep(60)
        assert yard.sent[STATUS] >= 1, "it went on where it was stopped"
        assert not {"POST services", "POST pods"} & yard.sent.keys()
        assert [each["metadata"]["uid"] for each in yard.server.all("services")] == services
        assert (yard.status(key)["phase"], yard.pods()) == ("Succeeded", [])

    without_controller(body)


def test_pods_wait_for_a_service_that_is_refused() -> None:
    async def body(yard: Yard) -> None:
        asked = writes(
            yard, lambda call: Fault.REFUSED if call.key.plural == "services" else Fault.NONE
        )
        key = yard.submit(pytorch(replicas=REPLICAS))
        await asyncio.sleep(10)
        assert "POST pods" not in asked
        messages = [each["message"] for each in yard.status(key)["conditions"]]
        assert any("exceeded quota" in text for text in messages), messages

    in_yard(body)


@pytest.mark.parametrize("failed", [0, 1])
def test_who_takes_over_after_the_first_status_goes_on_from_it(failed: int) -> None:
    """What has failed meanwhile counts, and once."""

    async def body(yard: Yard) -> None:
        stored: list[Call] = []

        def fault(call: Call) -> Fault:
            if call.method == "PUT":
                stored.append(call)
            return Fault.SERVER_ERROR if len(stored) > 1 else Fault.NONE

        writes(yard, fault)
        async with leading(yard):
            key = yard.submit(pytorch(replicas=REPLICAS, policy="OnFailure"))
            await asyncio.sleep(1)
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


@pytest.mark.parametrize("failed", [0, 1])
def test_pods_without_a_status_are_adopted(failed: int) -> None:
    """An older version created first pods before the status; or somebody has erased that."""

    async def body(yard: Yard) -> None:
        async with leading(yard):
            key = yard.submit(pytorch(replicas=REPLICAS, policy="OnFailure"))
            await asyncio.sleep(1)
        yard.server.set(key, status={})
        pods = yard.pods()
        yard.let_run()
        for pod in pods[:failed]:
            where = Key("pods", "default", pod["metadata"]["name"])
            yard.server.set(where, status={"phase": "Failed"})
        async with leading(yard):
            await asyncio.sleep(5)
            yard.finish_deletions()
            await asyncio.sleep(60)
        status: Obj = yard.status(key)
        assert status["backoffCount"] == failed
        uids = {pod["metadata"]["uid"] for pod in yard.pods()}
        assert len(uids) == REPLICAS
        if not failed:
            assert uids == {pod["metadata"]["uid"] for pod in pods}

    without_controller(body)


def test_a_job_that_a_late_watch_shows_as_new_is_not_begun_again() -> None:
    """It came, and ended, while another led."""

    async def body(yard: Yard) -> None:
        late = Conditions(lambda call: Fault.NONE, lambda key: None)
        late.lag[JOBS] = 100.0
        standby = Controller(
            Client(_wire(yard, late)), OperatorSettings(), RuntimeContext(yard.clock)
        )
        watching = asyncio.create_task(standby.watch())
        async with leading(yard):
            key = yard.submit(pytorch(replicas=1, runPolicy={"cleanUpPolicy": "All"}))
            await asyncio.sleep(5)
            await succeed(yard)
        assert (yard.status(key)["phase"], yard.pods()) == ("Succeeded", [])
        yard.sent.clear()
        working = asyncio.create_task(standby.work())
        await asyncio.sleep(300)
        assert standby.jobs["PyTorchTrainingJob"].get("default", "train") is not None
        assert not {"POST services", "POST pods"} & yard.sent.keys()
        for task in (watching, working):
            task.cancel()
        await asyncio.wait([watching, working])

    without_controller(body)
