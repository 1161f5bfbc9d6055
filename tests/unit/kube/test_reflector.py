"""The reflector's copy equals the cluster after every kind of break, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation import network
from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Wire
from tests.simulation.server import Key, ModelServer
from tests.simulation.virtual_time import run
from trainyard.kube.client import Client, Selection
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import PODS
from trainyard.lifecycle.observed import Pod
from trainyard.operator.reconcile.object_cache import ObjectCache


class World:
    """A server with pods, a reflector of them, and a network that can be broken."""

    def __init__(self, *, optional: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.server = ModelServer(WallClock(loop), random.Random(1))
        self.fault = Fault.NONE
        self.calls: list[Call] = []
        self.conditions = Conditions(self._fate, lambda key: None)
        wire = Wire(
            self.server,
            self.conditions,
            random.Random(2),
            1,
            bool,
            lambda sent: None,
            lambda *_: None,
        )
        self.store: ObjectCache[Pod] = ObjectCache(lambda pod: pod.owner_uid, lambda pod: None)
        self.reflector = Reflector(
            Client(wire),
            PODS,
            Pod.decode,
            self.store,
            which=Selection("app"),
            optional=optional,
            rng=random.Random(3),
        )
        self.task = loop.create_task(self.reflector.run())

    def _fate(self, call: Call) -> Fault:
        self.calls.append(call)
        return self.fault

    def create(self, name: str, label: str = "app") -> None:
        metadata = {"name": name, "labels": {label: "x"}}
        self.server.create("pods", "default", {"metadata": metadata, "spec": {}})

    def delete(self, name: str) -> None:
        self.server.delete(Key("pods", "default", name))

    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.store)

    def cut(self) -> None:
        """Break every watch that is open."""
        self.conditions.generation += 1
        self.server.wake_watches()

    @property
    def lists(self) -> int:
        """How many lists were asked for."""
        return sum(1 for call in self.calls if "watch" not in call.params)


def in_world(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        await body(world)
        world.task.cancel()

    run(main())


def test_changes_arrive_and_objects_without_the_label_do_not() -> None:
    async def body(world: World) -> None:
        world.create("before")
        async with asyncio.timeout(120):
            await world.reflector.synced.wait()
        world.create("after")
        world.create("foreign", label="other")
        await asyncio.sleep(1)
        assert world.names() == ["after", "before"]
        world.delete("before")
        await asyncio.sleep(1)
        assert world.names() == ["after"]
        assert world.lists == 1

    in_world(body)


def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    async def body(world: World) -> None:
        world.create("a")
        await asyncio.sleep(1)
        world.cut()
        world.create("b")
        await asyncio.sleep(5)
        assert world.names() == ["a", "b"]
        assert world.lists == 1

    in_world(body)


def test_deletions_that_nobody_watched_are_seen_after_410() -> None:
    async def body(world: World) -> None:
        world.create("a")
        world.create("b")
        await asyncio.sleep(1)
        world.fault = Fault.LOST_REQUEST
        world.cut()
        world.delete("a")
        await asyncio.sleep(60)
        world.server.forget_history()
        world.fault = Fault.NONE
        await asyncio.sleep(60)
        assert world.names() == ["b"]
        assert world.lists == 2

    in_world(body)


def test_bookmarks_keep_a_quiet_watch_from_expiring() -> None:
    async def body(world: World) -> None:
        world.create("a")
        await asyncio.sleep(1)
        for number in range(50):  # others write, what we watch does not change
            world.server.create("events", "default", {"metadata": {"name": f"e{number}"}})
        await asyncio.sleep(250)
        world.server.forget_history()
        world.cut()
        await asyncio.sleep(60)
        assert world.lists == 1

    in_world(body)


def test_a_quiet_watch_is_not_taken_for_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers before 1.21 send a bookmark when a watch is about to end, and none before."""
    monkeypatch.setattr(network, "_BOOKMARK_SECONDS", float("inf"))

    async def body(world: World) -> None:
        world.create("a")
        await asyncio.sleep(3600)
        assert world.lists == 1

    in_world(body)


def test_a_silent_watch_is_replaced() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(1)
        world.conditions.silenced_at["pods"] = asyncio.get_running_loop().time()
        world.create("a")
        await asyncio.sleep(200)
        assert world.names() == ["a"]

    in_world(body)


def test_a_collection_that_is_hidden_for_a_while_is_not_taken_for_empty() -> None:
    async def body(world: World) -> None:
        world.create("a")
        await asyncio.sleep(1)
        world.fault = Fault.REFUSED
        world.server.forget_history()
        world.cut()
        await asyncio.sleep(120)
        assert world.names() == ["a"]

    in_world(body)


def test_a_resource_that_is_not_shown_counts_as_empty_only_where_that_is_allowed() -> None:
    async def body(world: World) -> None:
        world.fault = Fault.REFUSED
        await asyncio.sleep(120)
        assert not world.reflector.synced.is_set()
        world.task.cancel()
        lenient = World(optional=True)
        lenient.fault = Fault.REFUSED
        await asyncio.sleep(1)
        assert lenient.reflector.synced.is_set()
        lenient.fault = Fault.NONE
        lenient.create("a")
        await asyncio.sleep(120)
        assert lenient.names() == ["a"]
        lenient.task.cancel()

    in_world(body)


def test_an_unreachable_server_is_asked_less_and_less_often() -> None:
    async def body(world: World) -> None:
        world.fault = Fault.SERVER_ERROR
        await asyncio.sleep(600)
        assert len(world.calls) < 60
        world.fault = Fault.NONE
        await asyncio.sleep(60)
        assert world.reflector.synced.is_set()

    in_world(body)


def test_an_object_that_cannot_be_decoded_hides_no_other() -> None:
    async def body(world: World) -> None:
        world.create("a")
        world.server.create(
            "pods",
            "default",
            {
                "metadata": {"name": "bad", "labels": {"app": "x"}, "ownerReferences": "x"},
                "spec": {},
            },
        )
        await asyncio.sleep(5)
        assert world.names() == ["a"]
        world.create("b")
        world.delete("bad")
        await asyncio.sleep(5)
        assert world.names() == ["a", "b"]
        assert not world.task.done()

    in_world(body)
