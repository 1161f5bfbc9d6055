"""What the controller hears of launches, against the modelled API server in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Sent, Wire
from tests.simulation.server import ModelServer
from tests.simulation.virtual_time import run
from trainyard.kube.client import Client
from trainyard.lifecycle.observed import Pod
from trainyard.operator.reconcile.launch_probe_output import LaunchProbeOutput
from trainyard.schema.times import render

WAITS = "waiting for worker-1: Connection refused"
NOTE = "preflight: torch differs: 2.3 on worker-0; 2.1 on worker-1"


class Listening:
    """A controller's ears, one job of two pods of which the first launches, and its Events."""

    def __init__(self) -> None:
        self.clock = WallClock(asyncio.get_running_loop())
        self.began = render(self.clock())
        self.server = ModelServer(self.clock, random.Random(1))
        self.fault = Fault.NONE
        self.asked = 0
        conditions = Conditions(self._fate, lambda key: None)
        wire = Wire(self.server, conditions, random.Random(2), 1, bool, _ignore, _ignore)
        self.words = LaunchProbeOutput(Client(wire), self.clock)
        self.started = False

    def _fate(self, call: Call) -> Fault:
        self.asked += 1
        assert call.params["fieldSelector"] == "involvedObject.uid=uid-0,reason=Unhealthy"
        return self.fault

    def probe_fails(self, words: str) -> None:
        name = f"event-{len(self.server.objects)}"
        event = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "name": "train-worker-0", "uid": "uid-0"},
            "reason": "Unhealthy",
            "message": f"Startup probe failed: trainyard: {words}\n",
            "lastTimestamp": render(self.clock()),
        }
        self.server.create("events", "default", event)

    def pod(self, number: int) -> Pod:
        started = self.started if number == 0 else True
        state: dict[str, Any] = {"running": {"startedAt": self.began}}
        container = {"name": "worker", "started": started, "state": state}
        metadata = {"name": f"train-worker-{number}", "namespace": "default"}
        obj = {
            "metadata": {**metadata, "uid": f"uid-{number}"},
            "spec": {"nodeName": "node"},
            "status": {"phase": "Running", "containerStatuses": [container]},
        }
        return Pod.decode(obj)

    async def hear(self) -> Mapping[str, str]:
        return await self.words.probe_output_by_pod("job", [self.pod(0), self.pod(1)])


def _ignore(sent: Sent, _: Any = None) -> None:
    """Nobody looks at what is sent."""


def test_nothing_is_asked_of_a_launch_that_is_quick() -> None:
    async def scene() -> None:
        job = Listening()
        job.probe_fails(WAITS)
        await asyncio.sleep(2)
        assert (await job.hear(), job.asked) == ({}, 0)

    run(scene())


def test_the_newest_words_are_told_while_it_waits_and_asked_for_now_and_then() -> None:
    async def scene() -> None:
        job = Listening()
        await asyncio.sleep(4)
        assert await job.hear() == {}
        job.probe_fails("waiting for worker-1: no answer")
        await asyncio.sleep(2)
        job.probe_fails(WAITS)
        assert (await job.hear(), job.asked) == ({}, 1)
        await asyncio.sleep(4)
        assert (await job.hear(), job.asked) == ({"uid-0": WAITS}, 2)
        job.fault = Fault.REFUSED
        await asyncio.sleep(6)
        assert (await job.hear(), job.asked) == ({"uid-0": WAITS}, 3)

    run(scene())


def test_what_a_launch_had_to_say_as_it_started_is_asked_for_once() -> None:
    """Even of one that was too quick to be asked before."""

    async def scene() -> None:
        job = Listening()
        assert await job.hear() == {}
        job.probe_fails(NOTE)
        await asyncio.sleep(2)
        job.started = True
        for _ in range(3):
            assert (await job.hear(), job.asked) == ({"uid-0": NOTE}, 1)
            await asyncio.sleep(60)

    run(scene())


def test_of_a_launch_that_had_started_before_nothing_is_asked() -> None:
    async def scene() -> None:
        job = Listening()
        job.started = True
        job.probe_fails(NOTE)
        await asyncio.sleep(60)
        assert (await job.hear(), job.asked) == ({}, 0)
        job.words.forget("job")

    run(scene())
