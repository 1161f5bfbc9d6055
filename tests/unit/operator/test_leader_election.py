"""Leader election in virtual time, against the modelled API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.cluster import WallClock
from tests.simulation.network import Call, Conditions, Fault, Wire
from tests.simulation.server import ModelServer
from tests.simulation.virtual_time import run
from trainyard.kube.client import Client
from trainyard.kube.transport import Request, Response
from trainyard.operator.config.operator_settings import LeaseSettings
from trainyard.operator.leader_election import LeaderElection


class Slow:
    """A transport whose answers take as long as the arena says."""

    def __init__(self, wire: Wire, arena: Arena) -> None:
        self._wire, self._arena = wire, arena

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        self._arena.asked.append(request.method)
        answer = await self._wire.request(request, timeout_seconds)
        if request.method == "PUT":
            self._arena.wrote.set()
        await asyncio.sleep(self._arena.answer_seconds)
        return answer

    def stream(self, request: Request, timeout_seconds: float) -> Any:
        return self._wire.stream(request, timeout_seconds)

    async def aclose(self) -> None:
        await self._wire.aclose()


class Arena:
    """Some candidates, what each of them did, and whose network is down."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = WallClock(self.loop)
        self.server = ModelServer(self.clock, random.Random(1))
        self.down: set[str] = set()
        self.answer_seconds = 0.0
        self.asked: list[str] = []
        self.wrote = asyncio.Event()
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
        election = LeaderElection(
            Client(Slow(wire, self)), LeaseSettings(), self.clock, identity=name
        )
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


@pytest.mark.parametrize("answer", [0.0, 0.2])
def test_a_takeover_takes_the_leases_time_and_a_look(answer: float) -> None:
    """Whenever the leader dies: a renewal is seen up to a look (0.5 s) and an answer late, the
    Lease is asked for within another look of its end, and what is then found is written."""

    async def body(arena: Arena) -> None:
        arena.answer_seconds, rng, took = answer, random.Random(3), []
        arena.enter("0")
        for number in range(1, 60):
            await asyncio.sleep(20)
            (leader,) = arena.working
            arena.enter(str(number))
            await asyncio.sleep(20 + rng.uniform(0, 3))
            arena.down.add(leader)
            died_at = arena.loop.time()
            await asyncio.sleep(20)
            ((began_at, successor),) = arena.history[number:]
            assert arena.working == [successor] != [leader]
            took.append(began_at - died_at)
            await arena.leave(leader)
        lease, look = 15.0, 0.5
        assert min(took) >= lease - 2.0 - 2 * answer, "no sooner than others may take it"
        assert max(took) <= lease + look + 4 * answer, "and not later"

    in_arena(body)


def test_looks_that_are_lost_at_the_leases_end_cost_a_second() -> None:
    """Some fail at once, some hang; the leader died right after it had renewed."""

    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        arena.enter("b")
        for delay in range(8):
            await asyncio.sleep(20 + delay / 13)
            (leader,) = arena.working
            (standby,) = {"a", "b"} - {leader}
            arena.wrote.clear()
            await arena.wrote.wait()
            arena.down.add(leader)
            died_at = arena.loop.time()
            await asyncio.sleep(14.7)
            arena.down.add(standby)  # for as long as it takes it to look once
            await asyncio.sleep(0.5)
            arena.down.remove(standby)
            await asyncio.sleep(3)
            assert arena.working == [standby]
            assert arena.history[-1][0] - died_at <= 15.0 + 0.5 + 1.0
            arena.down.remove(leader)

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


@pytest.mark.parametrize("seconds", [2.2, 2.5, 4.5])
def test_a_slow_server_costs_no_lease(seconds: float) -> None:
    """A renewal is one request, which may take half of the time that there is."""

    async def body(arena: Arena) -> None:
        arena.answer_seconds = seconds
        arena.enter("a")
        await asyncio.sleep(20)
        arena.enter("b")
        arena.asked.clear()
        await asyncio.sleep(300)
        assert arena.history == [(arena.history[0][0], "a")]

    in_arena(body)


def test_a_holder_renews_without_reading() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        arena.asked.clear()
        await asyncio.sleep(60)
        assert set(arena.asked) == {"PUT"}
        assert 25 <= len(arena.asked) <= 35

    in_arena(body)


def test_a_lease_that_somebody_else_wrote_meanwhile_is_read_again() -> None:
    async def body(arena: Arena) -> None:
        arena.enter("a")
        await asyncio.sleep(10)
        (key,) = (key for key in arena.server.objects if key.plural == "leases")
        metadata = {**arena.server.get(key)["metadata"], "labels": {"of": "somebody"}}
        arena.server.set(key, metadata=metadata)
        await asyncio.sleep(60)
        assert arena.history == [(arena.history[0][0], "a")]
        assert arena.server.get(key)["metadata"]["labels"] == {"of": "somebody"}

    in_arena(body)
