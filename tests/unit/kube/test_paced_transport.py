"""A client that is told to ask for less asks for less, in order. The time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.simulation.virtual_time import virtual_loop
from trainyard.kube.paced_transport import PacedTransport, RequestLimits
from trainyard.kube.transport import Request, Response, StreamResponse


class Server:
    """Takes a second for an answer."""

    def __init__(self) -> None:
        self.came: list[tuple[str, float]] = []
        self.under_way = self.most = 0

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        self._came(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(1)
        self.under_way -= 1
        return Response(200, {}, request.path.encode())

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        self._came(request)
        yield StreamResponse(200, {}, _nothing())

    async def aclose(self) -> None:
        pass

    def _came(self, request: Request) -> None:
        self.came.append((request.path, asyncio.get_running_loop().time()))


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def paths(server: Server) -> list[str]:
    return [path for path, _ in server.came]


async def _ask(transport: PacedTransport, names: list[str]) -> list[bytes]:
    answers = await asyncio.gather(*(transport.request(Request("GET", n), 30) for n in names))
    return [answer.body for answer in answers]


NAMES = [f"/{number}" for number in range(10)]


def test_no_more_than_so_many_are_under_way_and_watches_do_not_count() -> None:
    server = Server()

    async def asked() -> list[bytes]:
        transport = PacedTransport(server, RequestLimits(at_once=3))
        async with (
            transport.stream(Request("GET", "/w1"), 30),
            transport.stream(Request("GET", "/w2"), 30),
        ):
            return await _ask(transport, NAMES)

    with virtual_loop() as loop:
        assert loop.run_until_complete(asked()) == [name.encode() for name in NAMES]
    assert server.most == 3
    assert paths(server) == ["/w1", "/w2", *NAMES]


def test_those_a_second_are_spread_after_the_first_of_them() -> None:
    server = Server()

    async def asked() -> None:
        transport = PacedTransport(server, RequestLimits(per_second=4))
        await _ask(transport, NAMES)
        await asyncio.sleep(60)
        await _ask(transport, NAMES[:5])

    with virtual_loop() as loop:
        loop.run_until_complete(asked())
    assert paths(server) == [*NAMES, *NAMES[:5]]
    times = [round(at - server.came[0][1], 3) for _, at in server.came]
    assert times[:10] == [0, 0, 0, 0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    assert [at - times[10] for at in times[10:]] == [0, 0, 0, 0, 0.25]
