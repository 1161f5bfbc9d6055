"""Leader election in virtual time, against the modelled API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Wire
from tests.simulation.server import ModelServer
from tests.simulation.virtual_time import run
from trainyard.kube.client import Client
from trainyard.operator.election import LeaderElection, LeaseSettings


class Arena:
    """Some candidates, what each of them did, and whose network is down."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = WallClock(self.loop)
        self.server = ModelServer(self.clock, random.Random(1))
        self.down: set[str] = set()
        self.working: list[str] = []
        self.history: list[tuple[float, str]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def enter(self, name: str) -> None:
        """A new candidate."""

        def fate(call: Call) -> Fault:
            return Fault.LOST_REQUEST if name in self.down else Fault.NONE

        conditions = Conditions(fate, lambda key: None)
        rng = random.Random(name)
        wire = Wire(self.server, conditions, rng, 1, bool, lambda sent: None, lambda *_: None)
        election = LeaderElection(Client(wire), LeaseSettings(), self.clock, identity=name)
        self.tasks[name] = self.loop.create_task(election.run(lambda: self._work(name)))

    async def _work(self, name: str) -> None:
        assert not self.working, f"{name} works beside {self.working}"
        self.working.append(name)
        self.history.append((self.loop.time(), name))
        try:
            await asyncio.Event().wait()
        finally:
            self.working.remove(name)

    async def leave(self, name: str) -> None:
        """A candidate ends in good order."""
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.wait([task])


def in_arena(body: Callable[[Arena], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        arena = Arena()
        await body(arena)
        for name in list(arena.tasks):
            await arena.leave(name)

    run(main())


def test_one_of_several_leads() -> None:
    async def body(arena: Arena) -> None:
        for name in "abc":
            arena.enter(name)
        await asyncio.sleep(300)
        assert len(arena.working) == 1
        assert len(arena.history) == 1

    in_arena(body)


def test_a_leader_that_leaves_is_followed_without_waiting_for_the_lease_to_expire() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        arena.enter("b")
        await asyncio.sleep(10)
        await arena.leave("a")
        left = arena.loop.time()
        await asyncio.sleep(5)
        assert arena.working == ["b"]
        assert arena.history[-1][0] - left < 3

    in_arena(body)


def test_a_leader_that_is_cut_off_stops_before_another_starts() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        arena.enter("b")
        await asyncio.sleep(10)
        arena.down.add("a")
        await asyncio.sleep(11)
        assert arena.working == [], "a must stop within its renew deadline"
        await asyncio.sleep(15)
        assert arena.working == ["b"]

    in_arena(body)


def test_a_short_outage_does_not_cost_the_lease() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        arena.enter("b")
        await asyncio.sleep(10)
        leader = arena.working[0]
        arena.down.add(leader)
        await asyncio.sleep(4)
        arena.down.clear()
        await asyncio.sleep(60)
        assert arena.working == [leader]
        assert len(arena.history) == 1

    in_arena(body)


def test_a_wrong_wall_clock_does_not_win_the_lease() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        arena.clock.offset = 100_000
        arena.enter("b")
        await asyncio.sleep(60)
        assert arena.working == ["a"]

    in_arena(body)
