"""Streams of a command that runs in a container."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from trainyard.client.exec_client import OUTCOME, ExecStream


async def test_input_that_comes_after_the_end_of_the_command_is_dropped() -> None:
    async def run(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        await socket.send_bytes(bytes([OUTCOME]) + b'{"status":"Success"}')
        assert request.transport is not None
        request.transport.close()
        return socket

    app = web.Application()
    app.router.add_get("/", run)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket,
        ):
            stream = ExecStream(socket, "run a command")
            for _ in range(100):
                await stream.write(b"x")
                await asyncio.sleep(0.005)
            await stream.close_stdin()
            assert [chunk async for chunk in stream.output()] == []
            assert stream.exit_code == 0
    finally:
        await runner.cleanup()
