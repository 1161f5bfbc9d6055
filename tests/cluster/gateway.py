"""What stands in front of the API server, and makes it slow or busy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import aiohttp
from aiohttp import web

from tests.cluster.plane import RunningControlPlane

_OF_A_CONNECTION = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


class Gateway:
    """Passes requests on, watches included, each after a while; or refuses them.

    Of every ten requests, `refused` are answered with 429 and not passed on.
    """

    def __init__(self, plane: RunningControlPlane) -> None:
        self._plane = plane
        self._session: aiohttp.ClientSession | None = None
        self._numbers = count()
        self.delay_seconds = 0.0
        self.refused = 0
        self.passed_on = 0
        self.refusals = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Its port, while it is open."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._plane.certificate)
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        trust = ssl.create_default_context(cafile=str(self._plane.authority))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self._plane.port}",
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
        ) as self._session:
            try:
                await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
                yield runner.addresses[0][1]
            finally:
                await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        await asyncio.sleep(self.delay_seconds)
        # 3 of 10: numbers 0, 3 and 6, so that no two in a row are of the same ten.
        if next(self._numbers) * self.refused % 10 < self.refused:
            self.refusals += 1
            return web.Response(status=429, headers={"Retry-After": "1"}, text="busy")
        self.passed_on += 1
        sent = {k: v for k, v in request.headers.items() if k.lower() not in _OF_A_CONNECTION}
        body = await request.read() or None  # of nothing, aiohttp would tell a type
        async with self._session.request(
            request.method, request.raw_path, data=body, headers=sent
        ) as answer:
            told = {k: v for k, v in answer.headers.items() if k.lower() not in _OF_A_CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=told)
            with suppress(ConnectionError):  # whoever asked has gone
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response
