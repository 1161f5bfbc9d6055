"""How many requests at once a client dares to send, against servers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.simulation.virtual_time import run
from trainyard.kube.adaptive_concurrency import AdaptiveConcurrency
from trainyard.kube.paced_transport import PacedTransport, RequestLimits
from trainyard.kube.transport import Request, Response, StreamResponse


class Server:
    """Answers after as long as `seconds` says for so many requests at once."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.refuses_until = 0.0
        self.in_flight = 0
        self.slowest = 0.0

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        self.in_flight += 1
        try:
            taken = self.seconds(self.in_flight)
            self.slowest = max(self.slowest, taken)
            await asyncio.sleep(taken)
        finally:
            self.in_flight -= 1
        if asyncio.get_running_loop().time() < self.refuses_until:
            return Response(429, {"retry-after": "1"}, b"")
        return Response(200, {}, b"")

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        raise NotImplementedError
        yield

    async def aclose(self) -> None:
        pass


def load(server: Server, seconds: float, then: Callable[[AdaptiveConcurrency], None]) -> None:
    """200 writers that never rest, for that long; and what the slots look like then."""

    async def main() -> None:
        transport = PacedTransport(server, RequestLimits(at_once=100))

        async def write() -> None:
            while True:
                await transport.request(Request("POST", "/"), 30)
                await asyncio.sleep(0.001)

        writers = [asyncio.create_task(write()) for _ in range(200)]
        await asyncio.sleep(seconds)
        then(transport._slots)
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
        await asyncio.sleep(0)
        assert transport._slots.in_flight == 0

    run(main())


def test_a_server_that_bears_it_is_asked_for_as_much_as_is_allowed() -> None:
    def then(slots: AdaptiveConcurrency) -> None:
        assert slots.limit == 100

    load(Server(lambda number: 0.2), 20, then)


def test_a_server_that_becomes_slow_by_the_load_is_asked_for_less() -> None:
    server = Server(lambda number: 0.05 if number <= 8 else 0.05 * (number - 7) ** 1.5)

    def then(slots: AdaptiveConcurrency) -> None:
        assert slots.limit < 20
        server.slowest = 0.0

    load(server, 60, then)
    assert server.slowest < 2.5  # with 32 at once: 6 s, and with 100 of them 45 s


@pytest.mark.parametrize("before", [0.0, 20.0])
def test_a_server_that_takes_long_for_each_is_not(before: float) -> None:
    """2.5 s for each request, from the beginning, or after short answers."""
    began: list[float] = []

    def seconds(number: int) -> float:
        now = asyncio.get_running_loop().time()
        began[:] = began or [now]
        return 0.3 if now < began[0] + before else 2.5

    def then(slots: AdaptiveConcurrency) -> None:
        assert slots.limit > 40

    load(Server(seconds), before + 200, then)


def test_a_server_that_says_429_is_asked_for_less_and_later_for_more_again() -> None:
    seen: list[float] = []

    def then(slots: AdaptiveConcurrency) -> None:
        seen.append(slots.limit)

    for seconds in (4.0, 30.0):
        server = Server(lambda number: 0.2)
        server.refuses_until = 4.0
        load(server, seconds, then)
    assert seen == [4, 100]


def test_those_who_wait_get_their_turn_in_order_and_one_who_leaves_loses_nobodys() -> None:
    async def main() -> None:
        slots, turns = AdaptiveConcurrency(1), []

        async def take(number: int) -> None:
            await slots.acquire()
            turns.append(number)
            slots.release()

        await slots.acquire()
        tasks = [asyncio.create_task(take(number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.sleep(0)
        slots.release()
        tasks[1].cancel()  # its turn has come, and it does not know yet
        await asyncio.wait(tasks)
        assert turns == [3, 4]
        assert slots.in_flight == 0

    run(main())


def test_what_can_wait_waits_until_little_is_under_way() -> None:
    async def main() -> None:
        slots, loop = AdaptiveConcurrency(32), asyncio.get_running_loop()
        await slots.wait_until_quiet(2.0)
        assert loop.time() == 0
        for _ in range(10):
            await slots.acquire()
        await slots.wait_until_quiet(2.0)
        assert loop.time() == pytest.approx(2.0)
        loop.call_later(1.0, lambda: [slots.release() for _ in range(10)])
        await slots.wait_until_quiet(2.0)
        assert loop.time() == pytest.approx(3.0)

    run(main())
