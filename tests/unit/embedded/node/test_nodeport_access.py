"""Who may use a port that leads into a pod."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from trainyard.embedded.node.network import nodeport_access

EVIL = b"GET / HTTP/1.1\r\nHost: evil.example:6006\r\n\r\n"


async def opening(*pieces: bytes) -> bytes:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    return await nodeport_access.read_opening(reader)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost:6006\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://localhost:6006\r\n\r\nrest",
        b"GET / HTTP/1.1\r\nhost:[::1]:80\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"POST x\r\nHost: evil.example\r\n\r\n",
        b"GETTING evil.example\r\n",
        b"GE",
        b"PING\r\n",
        b"\x16\x03\x01",
        b"",
    ],
)
async def test_what_no_other_site_sends_goes_through(data: bytes) -> None:
    assert await opening(data) == data
    assert await opening(*[bytes([each]) for each in data]) == data


@pytest.mark.parametrize(
    "data",
    [
        EVIL,
        b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:80\r\nOrigin: null\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    ],
)
async def test_a_page_of_another_site_is_refused(data: bytes) -> None:
    with pytest.raises(nodeport_access.PageRefused):
        await opening(data)
    with pytest.raises(nodeport_access.PageRefused):
        await opening(*[bytes([each]) for each in data])


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_a_connection_of_ones_own_is_known(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((host, port)), server.accept()[0] as end:
            assert await nodeport_access.is_allowed_user([], end)


async def test_a_connection_that_is_gone_is_nobodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
        with server.accept()[0] as end:
            assert not await nodeport_access.is_allowed_user([], end)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
async def test_a_connection_of_somebody_else_is_refused_unless_it_is_theirs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.seteuid(54321)  # whoever makes a socket has it; imports nothing, and may not
        try:
            theirs = socket.socket(server.family)
        finally:
            os.seteuid(0)
        theirs.connect(server.getsockname())
        with theirs, server.accept()[0] as end:
            assert not await nodeport_access.is_allowed_user([], end)
            assert await nodeport_access.is_allowed_user([54321], end)
