"""What a watcher tells of changes and refusals, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Wire
from tests.simulation.server import Key, ModelServer
from tests.simulation.virtual_time import run
from trainyard.client.object_watcher import Snapshot, watch
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import PODS


class World:
    """A server with pods, and a network that can be broken."""

    def __init__(self) -> None:
        self.server = ModelServer(WallClock(asyncio.get_running_loop()), random.Random(1))
        self.fault = Fault.NONE
        self.conditions = Conditions(self._fate, lambda key: None)
        nothing = (bool, lambda sent: None, lambda *_: None)
        self.client = Client(Wire(self.server, self.conditions, random.Random(2), 1, *nothing))

    def _fate(self, call: Call) -> Fault:
        return self.fault

    def create(self, name: str) -> None:
        metadata = {"name": name, "labels": {"app": "x"}}
        self.server.create("pods", "default", {"metadata": metadata, "spec": {}})


def contents(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The names of what changed, and of what is gone."""
    changed, gone = snapshot.changed, snapshot.gone
    return [o["metadata"]["name"] for o in changed], [o["metadata"]["name"] for o in gone]


def test_every_change_is_told_once_and_in_order() -> None:
    async def body() -> None:
        world = World()
        world.create("a")
        states = watch(world.client, PODS, "default", Selection("app"))
        async with contextlib.aclosing(states):
            assert contents(await anext(states)) == (["a"], [])
            world.create("b")
            assert contents(await anext(states)) == (["b"], [])
            world.server.delete(Key("pods", "default", "a"))
            snapshot = await anext(states)
            while not snapshot.gone:  # it is marked before it goes
                snapshot = await anext(states)
            assert contents(snapshot) == ([], ["a"])
            assert [pod["metadata"]["name"] for pod in snapshot.present.values()] == ["b"]

    run(body())


def test_a_server_that_refuses_is_an_error_unless_one_is_patient() -> None:
    async def body() -> None:
        world = World()
        world.fault = Fault.REFUSED
        states = watch(world.client, PODS, "default")
        with pytest.raises(KubeError):
            await anext(states)
        patient = watch(world.client, PODS, "default", is_patient=True)
        async with contextlib.aclosing(patient):
            first = asyncio.ensure_future(anext(patient))
            await asyncio.sleep(5)
            assert not first.done()
            world.fault = Fault.NONE
            assert contents(await first) == ([], [])

    run(body())
