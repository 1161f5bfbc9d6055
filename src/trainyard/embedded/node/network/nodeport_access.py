"""Decides who may use a NodePort, and which browser requests are let through.

Programs in pods, TensorBoard among them, ask nobody who they are, and everybody on a machine can
connect to its loopback. So the kernel is asked whose a connection is; and of HTTP, the first
request is looked at, since the user's own browser may be sent by a page of another site.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Collection
from pathlib import Path

from trainyard.embedded import browser_origin

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED = "0000000000000000FFFF0000"
"""An IPv4 address in a table of IPv6: who connects by a socket for both."""
_CHUNK = 64 << 10
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
_STARTS = tuple(f"{method} ".encode() for method in _METHODS)
_HTTP = re.compile(rb"[^\r\n]* HTTP/1\.[01]\r\n")


class PageRefused(Exception):
    """A page of another site asks; `answer` tells the browser so."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        text = f"forbidden: {why}\n".encode()
        head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(text)}\r\nConnection: close\r\n"
        self.answer = head.encode() + b"Content-Type: text/plain\r\n\r\n" + text


async def is_allowed_user(users: Collection[int], end: socket.socket) -> bool:
    """Whether a connection over loopback comes from root, this user or one of `users`."""
    peer, own = end.getpeername(), end.getsockname()
    uid = await asyncio.to_thread(_owner_of_peer, _proc_address(*peer[:2]), _proc_address(*own[:2]))
    return uid in (0, os.geteuid(), *users)


def _proc_address(host: str, port: int) -> str:
    """As the kernel writes it."""
    number = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    return f"{number:08X}:{port:04X}"


def _owner_of_peer(peer: str, own: str) -> int:
    """The user who has the other end; -1 when it is gone, or nothing can be read."""
    for table in _TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split(maxsplit=10)
            ends = fields[1].removeprefix(_MAPPED), fields[2].removeprefix(_MAPPED)
            # What has no inode is closed, and shown as root's.
            if ends == (peer, own) and fields[9] != "0":
                return int(fields[7])
    return -1


async def read_opening(reader: asyncio.StreamReader) -> bytes:
    """What a client sends first; raises RefusedError where a page of another site asks."""
    data = await reader.read(_CHUNK)
    while _may_be_http(data) and b"\r\n\r\n" not in data and len(data) < _CHUNK:
        more = await reader.read(_CHUNK)
        if not more:
            break
        data += more
    if data.startswith(_STARTS) and _HTTP.match(data):
        problem = browser_origin.page_problem(_headers(data.partition(b"\r\n\r\n")[0]))
        if problem:
            raise PageRefused(problem)
    return data


def _may_be_http(data: bytes) -> bool:
    if not data.startswith(_STARTS):
        return bool(data) and any(start.startswith(data) for start in _STARTS)
    return b"\r\n" not in data or _HTTP.match(data) is not None


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}
